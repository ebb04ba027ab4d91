"""The checker: whether what a store or a recorded history tells of jobs and runs keeps the promises of Horae.

`violations` judges a history that is at hand; `Checker` reads a store through, in bounded memory; `judge_recording`
judges what a harness has recorded beside the store: calls, effects, faults and the final state.
"""

from horae.proof.checking.findings import Code, History, Tolerance, Violation
from horae.proof.checking.history.coverage import Proof
from horae.proof.checking.history.equivalence import differences, history_class
from horae.proof.checking.history.final import read_final
from horae.proof.checking.history.recorded import Recording
from horae.proof.checking.history.recording import Recorder, read_lines, steady_clock
from horae.proof.checking.history.verdict import Verdict, judge_recording
from horae.proof.checking.store.checker import Checker, Seen
from horae.proof.checking.store.judge import violations

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
