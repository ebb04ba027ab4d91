"""Builds violations of recorded histories, and formats the names, times and durations in them."""

from datetime import UTC, datetime

from horae.proof.checking import findings
from horae.proof.checking.findings import Code, Violation
from horae.proof.checking.history.recording import RequestedJob


def found(code: Code, subject: str, detail: str) -> Violation:
    return Violation(code=code, subject=subject, detail=detail)


def name(requested: RequestedJob) -> str:
    """The id of the job, or its label where the id is not known."""
    if requested.job is not None:
        return requested.job.job
    return next((call.ok.job for call in requested.create_calls if call.ok and call.ok.job), requested.label)


def at(moment: float) -> str:
    return findings.at(datetime.fromtimestamp(moment, UTC))


def duration(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if abs(seconds) < 10 else f"{seconds:.1f} s"
