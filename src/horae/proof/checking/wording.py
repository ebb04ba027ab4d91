"""How judges tell what they found: names of jobs and runs, times and durations in words."""

from datetime import UTC, datetime

from horae.core.schedule.timestamps import rfc3339
from horae.proof.checking.findings import Code, Violation
from horae.proof.checking.history.recorded import Asked


def found(code: Code, subject: str, detail: str) -> Violation:
    return Violation(code=code, subject=subject, detail=detail)


def name(asked: Asked) -> str:
    """The job's id where it is known, else its label."""
    if asked.job is not None:
        return asked.job.job
    return next((call.ok.job for call in asked.creates if call.ok and call.ok.job), asked.label)


def at(moment: float) -> str:
    return f"at {rfc3339(datetime.fromtimestamp(moment, UTC))}"


def lasting(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if abs(seconds) < 10 else f"{seconds:.1f} s"
