"""The handle of a submitted job: its status, its result, and cancelling it."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Generic, TypeVar

from horae.core.errors import Conflict, NotFound, RunCancelled, RunFailed, RunSkipped
from horae.core.lifecycle import FINAL
from horae.core.model import JobId, Reason, Run, RunId, State
from horae.lookup import find_run
from horae.run import CurrentRun, current_run
from horae.sdk.wait_in_task import wait_in_task

if TYPE_CHECKING:
    from horae.sdk.connection import Connection
    from horae.sdk.event_loop import LoopBridge

T = TypeVar("T", covariant=True)


class Handle(Generic[T]):
    """A submitted job; `T` is what its task returns."""

    __slots__ = ("_bridge", "_decode", "_owner", "_uuid")

    def __init__(self, uuid: str, bridge: "LoopBridge", owner: str, decode: Callable[[Run], T]) -> None:
        self._uuid = uuid
        self._bridge = bridge
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
        """The id of the job (`job_…`)."""
        return f"job_{self._uuid}"

    @property
    def run_id(self) -> str:
        """The id of its run (`run_…`)."""
        return f"run_{self._uuid}"

    async def result(self, timeout: float | timedelta | None = None) -> T:
        """Wait for the result of the task, at most `timeout` seconds (None: without limit).

        Raises RunFailed, RunCancelled or RunSkipped if there is no result, and TimeoutError. A task that waits lends
        its slot to other runs; WaitRefused is raised where it would be in the way of the run all the same.
        """
        task = current_run.get(None)
        return self._result_of(await self._bridge.call(lambda connection: self._ended(connection, timeout, task)))

    def result_sync(self, timeout: float | timedelta | None = None) -> T:
        """The same from a thread without an event loop."""
        task = current_run.get(None)
        ended = self._bridge.call_sync(lambda connection: self._ended(connection, timeout, task), "result")
        return self._result_of(ended)

    async def status(self) -> str:
        """Return the status of its run: `scheduled`, `queued`, `running`, `retrying`, `cancelling`, or how it ended."""
        return await self._bridge.call(self._status)

    def status_sync(self) -> str:
        """The same from a thread without an event loop."""
        return self._bridge.call_sync(self._status, "status")

    async def progress(self) -> float | None:
        """Return how much of it is done, from 0 to 1, as its task last reported; None before it reports."""
        return await self._bridge.call(self._progress)

    def progress_sync(self) -> float | None:
        """The same from a thread without an event loop."""
        return self._bridge.call_sync(self._progress, "progress")

    async def cancel(self) -> str:
        """Cancel it; returns `cancelled`, or `cancelling` until a worker confirms; if it has ended, how it ended."""
        return await self._bridge.call(self._cancel)

    def cancel_sync(self) -> str:
        """The same from a thread without an event loop."""
        return self._bridge.call_sync(self._cancel, "cancel")

    async def _ended(self, connection: "Connection", timeout: float | timedelta | None, task: CurrentRun | None) -> Run:
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        try:
            async with asyncio.timeout(seconds):
                if task is None:
                    return await connection.waiter.wait(RunId(self._uuid))
                return await wait_in_task(task, connection, RunId(self._uuid))
        except TimeoutError:
            raise TimeoutError(await self._timeout_message(connection, seconds)) from None

    async def _timeout_message(self, connection: "Connection", seconds: float | None) -> str:
        run = await find_run(connection.store, RunId(self._uuid), owner=self._owner)
        if run is None:
            return f"there is no {self.run_id}: was the transaction that submitted it committed?"
        return f"{self.run_id} is still {_status_of(run, connection)} after {seconds:g} s"

    async def _run(self, connection: "Connection") -> Run:
        run = await find_run(connection.store, RunId(self._uuid), owner=self._owner)
        if run is None:
            raise NotFound("run", self.run_id)
        return run

    async def _status(self, connection: "Connection") -> str:
        return _status_of(await self._run(connection), connection)

    async def _progress(self, connection: "Connection") -> float | None:
        return (await self._run(connection)).progress

    async def _cancel(self, connection: "Connection") -> str:
        try:
            job = await connection.jobs.cancel(JobId(self._uuid), keep_running=False, owner=self._owner)
        except Conflict:
            run = await self._run(connection)
            if run.state not in FINAL:
                raise
        else:
            assert job.run is not None
            run = job.run
        return _status_of(run, connection)

    def _result_of(self, run: Run) -> T:
        match run.state:
            case State.SUCCEEDED:
                return self._decode(run)
            case State.CANCELLED:
                raise RunCancelled(self.run_id)
            case State.SKIPPED:
                raise RunSkipped(self.run_id, str(run.reason or Reason.TOO_LATE))
            case _:
                error = run.error
                described = ("error", "unknown") if error is None else (error.type, error.message)
                raise RunFailed(self.run_id, *described, attempts=run.attempt)


def _status_of(run: Run, connection: "Connection") -> str:
    from horae.core.job_rules import run_status  # late: a process that only submits does not need it

    return str(run_status(run, connection.clock.now()))
