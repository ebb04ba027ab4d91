"""Logs failed attempts of runs on stderr; of a flood a few a second, and how many were left out."""

import asyncio

import structlog

from horae.core.decisions.results import Settled
from horae.core.model import Run, State
from horae.core.schedule.timestamps import rfc3339

log = structlog.get_logger(__name__)

LINES = 10  # in one period
PERIOD_SECONDS = 1.0
MAX_ERROR = 500  # characters


class FailureLog:
    """Logs failures; used in one event loop."""

    def __init__(self) -> None:
        self._logged = 0  # in this period
        self._left_out = 0
        self._period: asyncio.TimerHandle | None = None

    def add(self, settled: Settled) -> None:
        """Log that an attempt of the run failed, and whether it is tried again."""
        if self._period is None:
            self._period = asyncio.get_running_loop().call_later(PERIOD_SECONDS, self._end_period)
        if self._logged >= LINES:
            self._left_out += 1
            return
        self._logged += 1
        run = settled.run
        if run.state is State.RETRYING:
            log.warning("attempt_failed", **_fields(run), retry_at=rfc3339(run.wake_at))
        else:
            log.error("run_failed", **_fields(run))

    def close(self) -> None:
        """Log how many lines were left out, now rather than at the end of the period."""
        if self._period is not None:
            self._period.cancel()
            self._end_period()

    def _end_period(self) -> None:
        if self._left_out:
            log.warning("failures_not_logged", count=self._left_out, advice="see `horae dlq ls` and `horae runs ls`")
        self._logged, self._left_out, self._period = 0, 0, None


def _fields(run: Run) -> dict[str, object]:
    error = "unknown" if run.error is None else f"{run.error.type}: {run.error.message}"
    return {
        "run": f"run_{run.id}",
        "job": f"job_{run.job_id}",
        "task": run.spec.task,
        "owner": run.owner,
        "attempt": run.attempt,
        "error": error if len(error) <= MAX_ERROR else f"{error[: MAX_ERROR - 1]}…",
    }
