"""Finding the order: costs, a placement and limits of memory in, the best order and a bound out."""

from .answer import Found
from .bounds import Bound, Resource
from .search import Progress, search

__all__ = ["Bound", "Found", "Progress", "Resource", "search"]
