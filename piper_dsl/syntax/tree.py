"""The tree of a ``.pipe`` file: frozen values, every one with its span.

Expressions are integers (a truth value is 0 or 1, as in Python); statements are what the grammar
calls statements. Nothing here knows what a name means: that is the work of :mod:`piper_dsl.expand`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..diagnostics import Source, Span
from ..ir.operations import Kind


@dataclass(frozen=True)
class Node:
    """What all parts of a tree have: their place."""

    span: Span


@dataclass(frozen=True)
class Word(Node):
    """A name where it is introduced, the name of what is called, or an operator."""

    text: str


# --- expressions -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Expression(Node):
    """A part of a tree that has an integer value."""


@dataclass(frozen=True)
class Number(Expression):
    """An integer."""

    value: int


@dataclass(frozen=True)
class Name(Expression):
    """A name where its value is wanted."""

    text: str


@dataclass(frozen=True)
class Unary(Expression):
    """``operator`` is ``+``, ``-`` or ``not``."""

    operator: str
    operand: Expression


@dataclass(frozen=True)
class Arithmetic(Expression):
    """Operands joined by ``+ -`` or by ``* // %``, evaluated from left to right."""

    operands: tuple[Expression, ...]
    operators: tuple[Word, ...]


@dataclass(frozen=True)
class Logic(Expression):
    """Operands joined by ``and`` or by ``or``; what follows a decided one is not evaluated."""

    operator: str
    operands: tuple[Expression, ...]


@dataclass(frozen=True)
class Compare(Expression):
    """A chain of comparisons, as in Python: ``0 <= i < m`` holds where every link does."""

    operands: tuple[Expression, ...]
    operators: tuple[Word, ...]


@dataclass(frozen=True)
class Conditional(Expression):
    """``then if condition else otherwise``."""

    then: Expression
    condition: Expression
    otherwise: Expression


@dataclass(frozen=True)
class Call(Expression):
    """``function(arguments)``."""

    function: Word
    arguments: tuple[Expression, ...]


@dataclass(frozen=True)
class Range(Node):
    """``start:stop:step``, meaning Python's ``range``; ``stop`` is None for a single index."""

    start: Expression
    stop: Expression | None
    step: Expression | None


# --- statements ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Statement(Node):
    """A part of a tree that declares or does something."""


@dataclass(frozen=True)
class ScheduleName(Statement):
    """``schedule "name"``."""

    name: str


@dataclass(frozen=True)
class Param(Statement):
    """``param name = default, "description"``."""

    name: Word
    default: Expression
    description: str | None


@dataclass(frozen=True)
class Let(Statement):
    """``let name = value``."""

    name: Word
    value: Expression


@dataclass(frozen=True)
class Function(Statement):
    """``fn name(parameters) = value``."""

    name: Word
    parameters: tuple[Word, ...]
    value: Expression


@dataclass(frozen=True)
class Sequence(Statement):
    """``seq name(parameters) { … }``."""

    name: Word
    parameters: tuple[Word, ...]
    body: Block


@dataclass(frozen=True)
class Require(Statement):
    """``require condition, "message"``."""

    condition: Expression
    message: str | None


@dataclass(frozen=True)
class Size(Statement):
    """``which`` is ``ranks``, ``microbatches`` or ``stages``."""

    which: str
    value: Expression


@dataclass(frozen=True)
class PlaceNamed(Statement):
    """``place loop`` or ``place vee``."""

    name: Word


@dataclass(frozen=True)
class PlaceRule(Statement):
    """``place s on e`` or ``place s, i on e``."""

    stage: Word
    microbatch: Word | None
    rank: Expression


@dataclass(frozen=True)
class Edge(Statement):
    """``edge source -> target``."""

    source: Expression
    target: Expression


@dataclass(frozen=True)
class Tie(Statement):
    """``tie a, b``: stages that share parameters."""

    stages: tuple[Expression, ...]


@dataclass(frozen=True)
class CostLine(Statement):
    """``cost F@s = e``; several kinds name an overlapped slot, as in ``cost F & B = 3``."""

    kinds: tuple[Kind, ...]
    stage: Expression | None
    value: Expression


@dataclass(frozen=True)
class RankBody(Statement):
    """The operations of the ranks that ``selector`` names."""

    selector: Range
    body: Block


@dataclass(frozen=True)
class BlockItem(Node):
    """``F@s at e``; ``slot`` is None for what takes free slots, ``stage`` for what ends every rank (``OPT``)."""

    kind: Kind
    stage: Word | None
    slot: Expression | None


@dataclass(frozen=True)
class BlockItems(Node):
    """The lines of a building block, braces included in its span."""

    lines: tuple[BlockItem, ...]


@dataclass(frozen=True)
class BuildingBlock(Statement):
    """``block period { … }``: the operations of one microbatch, repeated for all and moved ahead."""

    period: Expression
    items: BlockItems


@dataclass(frozen=True)
class AutoItem(Node):
    """``F[i]@s priority e when e``; ``microbatch`` and ``stage`` are None for what ends every rank (``OPT``)."""

    kind: Kind
    microbatch: Word | None
    stage: Word | None
    priority: Expression | None
    condition: Expression | None


@dataclass(frozen=True)
class AutoItems(Node):
    """The lines of a rule, braces included in its span."""

    lines: tuple[AutoItem, ...]


@dataclass(frozen=True)
class Auto(Statement):
    """``auto r { … }``: what a rank starts, of all that is ready; ``rank`` is the name its number goes by."""

    rank: Word | None
    items: AutoItems


@dataclass(frozen=True)
class Block(Node):
    """Statements in braces, or the run after a colon."""

    statements: tuple[Statement, ...]


@dataclass(frozen=True)
class For(Statement):
    """``for variable in range { … }``."""

    variable: Word
    range: Range
    body: Block


@dataclass(frozen=True)
class If(Statement):
    """``if condition { … } else { … }``."""

    condition: Expression
    then: Block
    otherwise: Block | None


@dataclass(frozen=True)
class SequenceCall(Statement):
    """``name(arguments)`` where operations stand."""

    name: Word
    arguments: tuple[Expression, ...]


@dataclass(frozen=True)
class OperationItem(Node):
    """``F[i]@s``: the operations of one kind for one microbatch or a range of them."""

    kind: Kind
    index: Range | None
    stage: Expression | None


@dataclass(frozen=True)
class Slot(Statement):
    """One operation, or several joined by ``&`` that start together."""

    items: tuple[OperationItem, ...]


@dataclass(frozen=True)
class Literals(Statement):
    """A run of operations written as PyTorch writes them: ``0F0 2I1 0OPT``.

    Arrays of one entry an operation: kind, stage (-1 where it is left out), microbatch (-1 for
    kinds without one), whether it is joined to the one before by ``&``, and the first and one past
    the last character in the source.
    """

    kinds: np.ndarray
    stages: np.ndarray
    microbatches: np.ndarray
    joined: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


@dataclass(frozen=True)
class Idle(Statement):
    """``_``: keeps columns aligned, means nothing."""


@dataclass(frozen=True)
class File:
    """A whole file: its source and its statements in source order."""

    source: Source
    statements: tuple[Statement, ...]
