"""What one has of a job that was submitted: how it stands, what it returned, and how to stop it."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Generic, TypeVar

from horae.core.errors import NotFound, RunCancelled, RunFailed, RunSkipped
from horae.core.model import JobId, Reason, Run, RunId, State

if TYPE_CHECKING:
    from horae.sdk.connection import Connection
    from horae.sdk.event_loop import Desk

T = TypeVar("T", covariant=True)


class Handle(Generic[T]):
    """A submitted job; `T` is what its task returns."""

    __slots__ = ("_decode", "_desk", "_owner", "_uuid")

    def __init__(self, uuid: str, desk: "Desk", owner: str, decode: Callable[[Run], T]) -> None:
        self._uuid = uuid
        self._desk = desk
        self._owner = owner
        self._decode = decode

    def __repr__(self) -> str:
        return f"<handle of {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other._uuid == self._uuid

    def __hash__(self) -> int:
        return hash(self._uuid)

    @property
    def id(self) -> str:
        """The id of the job, as the REST API knows it."""
        return f"job_{self._uuid}"

    @property
    def run_id(self) -> str:
        """The id of its run."""
        return f"run_{self._uuid}"

    async def result(self, timeout: float | timedelta | None = None) -> T:
        """Wait for what the task returns, for `timeout` seconds at most (None: as long as it takes).

        Raises RunFailed, RunCancelled or RunSkipped when there will be no result, and TimeoutError.
        """
        return self._outcome(await self._desk.call(lambda connection: self._end(connection, timeout)))

    def result_sync(self, timeout: float | timedelta | None = None) -> T:
        """The same from a thread without an event loop."""
        return self._outcome(self._desk.call_sync(lambda connection: self._end(connection, timeout), "result"))

    async def status(self) -> str:
        """How its run stands: `scheduled`, `queued`, `running`, `retrying`, `cancelling`, or how it ended."""
        return await self._desk.call(self._look)

    def status_sync(self) -> str:
        """The same from a thread without an event loop."""
        return self._desk.call_sync(self._look, "status")

    async def cancel(self) -> str:
        """Stop it; `cancelled`, or `cancelling` while a worker has yet to confirm. Raises Conflict when it is over."""
        return await self._desk.call(self._cancel)

    def cancel_sync(self) -> str:
        """The same from a thread without an event loop."""
        return self._desk.call_sync(self._cancel, "cancel")

    async def _end(self, connection: "Connection", timeout: float | timedelta | None) -> Run:
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        try:
            async with asyncio.timeout(seconds):
                return await connection.ends.of(RunId(self._uuid))
        except TimeoutError:
            raise TimeoutError(await self._why_no_end(connection, seconds)) from None

    async def _why_no_end(self, connection: "Connection", seconds: float | None) -> str:
        run = await connection.store.run(RunId(self._uuid), owner=self._owner)
        if run is None:
            return f"there is no {self.run_id}: was the transaction that submitted it committed?"
        return f"{self.run_id} is still {_status(run, connection)} after {seconds:g} s"

    async def _look(self, connection: "Connection") -> str:
        run = await connection.store.run(RunId(self._uuid), owner=self._owner)
        if run is None:
            raise NotFound("run", self.run_id)
        return _status(run, connection)

    async def _cancel(self, connection: "Connection") -> str:
        job = await connection.jobs.cancel(JobId(self._uuid), keep_running=False, owner=self._owner)
        assert job.run is not None
        return _status(job.run, connection)

    def _outcome(self, run: Run) -> T:
        match run.state:
            case State.SUCCEEDED:
                return self._decode(run)
            case State.CANCELLED:
                raise RunCancelled(self.run_id)
            case State.SKIPPED:
                raise RunSkipped(self.run_id, str(run.reason or Reason.TOO_LATE))
            case _:
                error = run.error
                named = ("error", "unknown") if error is None else (error.type, error.message)
                raise RunFailed(self.run_id, *named, attempts=run.attempt)


def _status(run: Run, connection: "Connection") -> str:
    from horae.core.job_rules import run_status  # late: whoever only submits does not ask

    return str(run_status(run, connection.clock.now()))
