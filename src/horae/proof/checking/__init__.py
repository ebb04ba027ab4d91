"""Checks whether a store or a recorded history keeps the guarantees of Horae.

`Checker` reads a whole store in bounded memory, and `violations` judges the same rows when they are already in memory.
`judge_recording` judges what a test harness recorded beside the store: calls, handlers, faults and the final state.
"""

from horae.proof.checking.findings import Code, History, Tolerance, Violation
from horae.proof.checking.history.coverage import Coverage
from horae.proof.checking.history.equivalence import differences, history_class
from horae.proof.checking.history.files import Recorder, read_lines, steady_clock
from horae.proof.checking.history.final_state import read_final
from horae.proof.checking.history.recording import Recording
from horae.proof.checking.history.verdict import HistoryVerdict, judge_recording
from horae.proof.checking.store.checker import CheckCounts, Checker
from horae.proof.checking.store.judge import violations

__all__ = [
    "CheckCounts",
    "Checker",
    "Code",
    "Coverage",
    "History",
    "HistoryVerdict",
    "Recorder",
    "Recording",
    "Tolerance",
    "Violation",
    "differences",
    "history_class",
    "judge_recording",
    "read_final",
    "read_lines",
    "steady_clock",
    "violations",
]
