"""Lowering: a checked schedule becomes one instruction list per rank."""

from .lower import lower
from .program import Code, Instruction, Program

__all__ = ["Code", "Instruction", "Program", "lower"]
