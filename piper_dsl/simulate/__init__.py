"""Time: costs in, a timeline with its metrics and bounds out."""

from ..ir.costs import Costs
from .bounds import Bounds
from .engine import DoesNotComplete, simulate
from .timeline import Bubble, RankReport, Timeline

__all__ = ["Bounds", "Bubble", "Costs", "DoesNotComplete", "RankReport", "Timeline", "simulate"]
