"""`horae check --history`: verify a history that a test harness has recorded."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from horae.cli.output import Column, print_fields, print_json, print_note, print_table
from horae.core.errors import Misconfigured

if TYPE_CHECKING:
    from horae.proof.checking import HistoryVerdict, Violation
    from horae.proof.checking.history.records import Line

COLUMNS = (Column(title="broken"), Column(title="violation"), Column(title="subject"), Column(title="detail"))


def judge_files(paths: Sequence[Path], final: Sequence["Line"]) -> "HistoryVerdict":
    """Judge the history in some files, together with the final state that was read from a store."""
    from horae.proof.checking import Recording, judge_recording, read_lines

    for path in paths:
        if not path.is_file():
            raise Misconfigured(f"there is no recorded history at {path}")
    return judge_recording(Recording([*read_lines(*paths), *final]))


def print_verdict(verdict: "HistoryVerdict", paths: Sequence[Path], *, output: str, most: int) -> None:
    """Print the violations and what the history covers."""
    found = verdict.violations[:most]
    if output == "json":
        print_json({**_document(verdict, paths), "violations": violation_documents(found)})
        return
    if found:
        print_table(COLUMNS, [(v.invariant, v.code, v.subject, v.detail) for v in found], empty="")
        more = f"; only the first {most} are shown" if len(verdict.violations) > most else ""
        print_note(f"{len(verdict.violations)} violations in {_amount(verdict)}{more}")
        return
    coverage = verdict.coverage
    print_fields(
        {
            "history": ", ".join(map(str, paths)),
            "checked": _amount(verdict),
            "violations": "none",
            "occurred": _counts({name: times for name, times in coverage.occurrences.items() if times}),
            "not seen": ", ".join(coverage.missing) or None,
            "faults": _counts(coverage.faults),
            "never fired": ", ".join(coverage.unfired) or None,
            "lateness": _lateness(verdict),
            "slots by": ", ".join(verdict.evaluators) or None,
        }
    )


def _amount(verdict: "HistoryVerdict") -> str:
    return f"{verdict.calls:,} calls, {verdict.jobs:,} jobs, {verdict.runs:,} runs and {verdict.starts:,} starts"


def _counts(counts: Mapping[str, int]) -> str | None:
    return ", ".join(f"{name} {times}" for name, times in counts.items()) or None


def _lateness(verdict: "HistoryVerdict") -> str | None:
    if (late := verdict.lateness) is None:
        return None
    figures = ("p50", late.p50), ("p99", late.p99), ("at most", late.longest)
    return f"{', '.join(f'{name} {seconds * 1000:.0f} ms' for name, seconds in figures)} of {late.starts} starts"


def _document(verdict: "HistoryVerdict", paths: Sequence[Path]) -> dict[str, object]:
    late, coverage = verdict.lateness, verdict.coverage
    return {
        "history": [str(path) for path in paths],
        "calls": verdict.calls,
        "jobs": verdict.jobs,
        "runs": verdict.runs,
        "starts": verdict.starts,
        "proof": {
            "proves": coverage.is_complete,
            "sights": {str(occurrence): times for occurrence, times in coverage.occurrences.items()},
            "faults": dict(coverage.faults),
            "unfired": list(coverage.unfired),
        },
        "lateness_ms": None
        if late is None
        else {"p50": late.p50 * 1000, "p99": late.p99 * 1000, "max": late.longest * 1000},
        "slots_by": list(verdict.evaluators),
    }


def violation_documents(found: Sequence["Violation"]) -> list[dict[str, object]]:
    """Return violations as JSON shows them."""
    return [{"invariant": v.invariant, "code": v.code, "subject": v.subject, "detail": v.detail} for v in found]
