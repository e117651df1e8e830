"""Tree and parameters to Schedule."""

from .expand import DEFAULT_MAX_OPS, expand

__all__ = ["DEFAULT_MAX_OPS", "expand"]
