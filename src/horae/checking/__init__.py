"""The checker: whether what a store tells of its jobs and runs keeps the promises of Horae.

`violations` judges a history that is at hand; `Checker` reads a store through, in bounded memory.
"""

from horae.checking.checker import Checker, Seen
from horae.checking.history import Code, History, Tolerance, Violation
from horae.checking.judge import violations

__all__ = ["Checker", "Code", "History", "Seen", "Tolerance", "Violation", "violations"]
