"""A job as users write it, before its task, schedule and parameters are checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from functools import lru_cache
from hashlib import sha256
from typing import Protocol

import msgspec

from horae.core.decisions.retry import RetryPolicy
from horae.core.model import NO_LABELS, Misfire, OnFailure, Overlap, Policy, Spec
from horae.core.values import Value, replace

MAX_INLINE_PARAMS = 64 * 1024  # bytes; larger parameters are stored as a blob
MAX_PARAMS = 10 * 1024 * 1024
DEFAULT_MAX_RETRIES = 3
DEFAULT_QUEUE = "default"


class Unchanged(Enum):
    """Marks a field that an update leaves as it is."""

    UNCHANGED = "unchanged"


UNCHANGED = Unchanged.UNCHANGED


@dataclass(frozen=True, slots=True)
class SecretsPatch:
    """A merge patch of the secrets of a job, as JSON text."""

    text: str = field(repr=False)


Secrets = str | SecretsPatch | Unchanged | None  # JSON text of an object, a patch, unchanged, or none


class TaskDefaults(Protocol):
    """The defaults of a task for its runs; None means those of the product."""

    @property
    def max_retries(self) -> int | None: ...

    @property
    def timeout(self) -> timedelta | None: ...

    @property
    def retry(self) -> RetryPolicy | None:
        """The delays between attempts; how many there are is `max_retries`."""

    @property
    def queue(self) -> str | None: ...

    @property
    def priority(self) -> int | None: ...


class Draft(Value, frozen=True, kw_only=True):
    """A job as a user wrote it; None leaves a choice to the task."""

    task: str
    params: str = "{}"  # JSON text of an object
    secrets: Secrets = None
    name: str | None = None
    key: str | None = None
    labels: Mapping[str, str] = NO_LABELS
    schedule: str | Mapping[str, object] = "now"
    queue: str | None = None
    priority: int | None = None
    ordering_key: str | None = None
    policy: Policy = Policy()  # except the next three fields
    retry: RetryPolicy | None = None  # except its max_retries
    max_retries: int | None = None
    timeout: timedelta | None = None
    allow_unknown_task: bool = False

    def __repr__(self) -> str:
        """Show only the task, so that logs never contain secrets."""
        return f"<draft of {self.task}>"

    def spec(
        self, defaults: TaskDefaults | None, *, params: str, params_blob: str | None, secrets: str | None = None
    ) -> Spec:
        """Return the spec: the draft with the defaults of its task filled in; `secrets` are sealed."""
        queue, priority = self.queue, self.priority
        if defaults is not None:
            queue = defaults.queue if queue is None else queue
            priority = defaults.priority if priority is None else priority
        return Spec(
            task=self.task,
            params=params,
            params_blob=params_blob,
            secrets=secrets,
            name=self.name,
            key=self.key,
            labels=self.labels,
            queue=DEFAULT_QUEUE if queue is None else queue,
            priority=0 if priority is None else priority,
            ordering_key=self.ordering_key,
            policy=self._policy(defaults),
        )

    def _policy(self, defaults: TaskDefaults | None) -> Policy:
        retry, retries, timeout = self.retry, self.max_retries, self.timeout
        if defaults is not None:
            retry = defaults.retry if retry is None else retry
            retries = defaults.max_retries if retries is None else retries
            timeout = defaults.timeout if timeout is None else timeout
        return _completed(self.policy, retry, DEFAULT_MAX_RETRIES if retries is None else retries, timeout)


@lru_cache(1024)  # most jobs share a handful of policies
def policy_of(
    *,
    start_within: float | None = None,
    overlap: str | None = None,
    misfire: str | None = None,
    catchup: float | None = None,
    on_failure: str | None = None,
) -> Policy:
    """Return the policy of a draft; durations are seconds, and None means the default."""
    default = Policy()
    return Policy(
        start_within=None if start_within is None else timedelta(seconds=start_within),
        overlap=Overlap(overlap or default.overlap),
        misfire=Misfire(misfire or default.misfire),
        catchup=default.catchup if catchup is None else timedelta(seconds=catchup),
        on_failure=OnFailure(on_failure or default.on_failure),
    )


@lru_cache(1024)
def _completed(policy: Policy, retry: RetryPolicy | None, max_retries: int, timeout: timedelta | None) -> Policy:
    return replace(policy, retry=replace(retry or policy.retry, max_retries=max_retries), timeout=timeout)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A draft with a key and a recurring schedule, as users declare it in code."""

    key: str
    draft: Draft

    @property
    def digest(self) -> str:
        """A hash that identifies this version; default values are left out, so new defaults change no digest."""
        defaults = Draft(task=self.draft.task)
        given = {
            name: getattr(self.draft, name)
            for name in Draft.__struct_fields__
            if name == "task" or getattr(self.draft, name) != getattr(defaults, name)
        }
        return sha256(msgspec.json.encode(given, enc_hook=_plain, order="deterministic")).hexdigest()


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} has no place in a draft")
