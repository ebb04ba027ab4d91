"""The checker: whether what a store or a recorded history tells of jobs and runs keeps the promises of Horae.

`violations` judges a history that is at hand; `Checker` reads a store through, in bounded memory; `judge_recording`
judges what a harness has recorded beside the store: calls, effects, faults and the final state.
"""

from horae.checking.checker import Checker, Seen
from horae.checking.classes import differences, history_class
from horae.checking.final import read_final
from horae.checking.history import Code, History, Tolerance, Violation
from horae.checking.judge import violations
from horae.checking.recorded import Recording
from horae.checking.recording import Recorder, read_lines, steady_clock
from horae.checking.sights import Proof
from horae.checking.verdict import Verdict, judge_recording

__all__ = [
    "Checker",
    "Code",
    "History",
    "Proof",
    "Recorder",
    "Recording",
    "Seen",
    "Tolerance",
    "Verdict",
    "Violation",
    "differences",
    "history_class",
    "judge_recording",
    "read_final",
    "read_lines",
    "steady_clock",
    "violations",
]
