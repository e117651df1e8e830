"""The schedule as data: operations, placement, stage graph, needs. Arrays inside, values outside."""

from .graph import StageGraph
from .operations import Kind, Operation
from .placement import Placement
from .schedule import Schedule

__all__ = ["Kind", "Operation", "Placement", "Schedule", "StageGraph"]
