"""Marks inside a model's forward: here a new stage may begin."""

from __future__ import annotations

from torch.distributed.pipelining import pipe_split
from torch.fx import Node

__all__ = ["is_mark", "stage_boundary"]

_MARK = "pippy._pipe_split"


def stage_boundary() -> None:
    """Written in ``forward``: the stage ends here, and the next begins. Does nothing while the model runs.

    It is PyTorch's own mark, ``torch.distributed.pipelining.pipe_split``: either may be written.
    """
    pipe_split()


def is_mark(node: Node) -> bool:
    """Whether a node of an exported graph is a mark."""
    return node.op == "call_function" and str(node.target).startswith(_MARK)
