"""Base classes of the domain: immutable values that are cheap to create and to copy with changes.

A run is copied at every move. A frozen dataclass of its size takes 20 µs for that, a msgspec struct less than one:
the only thing that the core uses from outside the standard library (docs/internals/decisions/0013).
"""

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

__all__ = ["FastStrEnum", "Value", "replace"]


class Value(Struct, frozen=True, gc=False):
    """A frozen value without reference cycles, so the garbage collector need not track it."""


class FastStrEnum(StrEnum):
    """A string enum that hashes as its string; `Enum.__hash__` is slow Python code."""

    __hash__ = str.__hash__
