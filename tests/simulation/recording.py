"""Records one simulated life as lines of a history for `horae.proof.checking`."""

from collections.abc import Callable, Mapping
from typing import Any

from horae.core.drafts import Draft
from horae.core.model import JobId, RunId
from horae.proof.checking.findings import job_name, run_name
from horae.proof.checking.history.records import Action, Definition, Fail, Info, Invoke, Line, Ok


class History:
    """The lines of a life in the order in which they were added."""

    def __init__(self, now: Callable[[], float]) -> None:
        """Create an empty history; `now` returns seconds since 1970."""
        self.now = now
        self.lines: list[Line] = []
        self._calls = 0

    def add(self, *lines: Line) -> None:
        self.lines += lines

    def invoke(
        self,
        action: Action,
        *,
        job: JobId | None = None,
        run: RunId | None = None,
        at: float | None = None,
        **fields: Any,
    ) -> str:
        """Record that a client sends a request; return the name of the call."""
        self._calls += 1
        call = f"call {self._calls}"
        self.add(
            Invoke(
                at=self.now() if at is None else at,
                call=call,
                action=action,
                job=None if job is None else job_name(job),
                run=None if run is None else run_name(run),
                **fields,
            )
        )
        return call

    def ok(self, call: str, **fields: Any) -> None:
        self.add(Ok(at=self.now(), call=call, **fields))

    def fail(self, call: str, problem: str) -> None:
        self.add(Fail(at=self.now(), call=call, problem=problem))

    def info(self, call: str, problem: str) -> None:
        self.add(Info(at=self.now(), call=call, problem=problem))


def definition_of(draft: Draft, label: str) -> Definition:
    """Convert a draft to the definition of the REST API."""
    policy = draft.policy
    assert draft.max_retries is not None
    return Definition(
        label=label,
        task=draft.task,
        params=draft.params,
        schedule=dict(draft.schedule) if isinstance(draft.schedule, Mapping) else draft.schedule,
        queue=draft.queue or "default",
        priority=draft.priority or 0,
        ordering_key=draft.ordering_key,
        on_failure=str(policy.on_failure),
        max_retries=draft.max_retries,
        initial_seconds=policy.retry.initial.total_seconds(),
        factor=policy.retry.factor,
        max_seconds=policy.retry.maximum.total_seconds(),
        timeout_seconds=None if draft.timeout is None else draft.timeout.total_seconds(),
        start_within_seconds=None if policy.start_within is None else policy.start_within.total_seconds(),
        overlap=str(policy.overlap),
        misfire=str(policy.misfire),
        catchup_seconds=policy.catchup.total_seconds(),
    )
