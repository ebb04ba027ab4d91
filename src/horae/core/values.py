"""What the words of the domain are made of: immutable values that are cheap to make, and cheaper to change a copy of.

A run is copied at every step of its life. A frozen dataclass of its size takes 20 µs for that, these less than one:
the one thing that the core takes from outside the standard library (docs/internals/decisions/0013).
"""

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

__all__ = ["Value", "Word", "replace"]


class Value(Struct, frozen=True, gc=False):
    """A frozen value. It never holds itself, so the garbage collector need not look at it."""


class Word(StrEnum):
    """One of a few words. It hashes as the text that it equals; what `Enum` does instead takes Python code."""

    __hash__ = str.__hash__
