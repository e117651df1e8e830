"""Time: costs in, a timeline with its metrics and bounds out."""

from ..ir.costs import Costs
from .bounds import Bounds
from .engine import DoesNotComplete, simulate
from .timeline import Bubble, RankReport, Timeline
from .timeline_file import TIMELINE_SUFFIX, read_timeline, timeline_json

__all__ = [
    "TIMELINE_SUFFIX",
    "Bounds",
    "Bubble",
    "Costs",
    "DoesNotComplete",
    "RankReport",
    "Timeline",
    "read_timeline",
    "simulate",
    "timeline_json",
]
