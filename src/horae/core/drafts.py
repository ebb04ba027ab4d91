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


class Draft(Value, frozen=True, kw_only=True):
    """A job as a user wrote it; None leaves a choice to the task."""

    task: str
    params: str = "{}"  # JSON text of an object
    secrets: Secrets = None
    name: str | None = None
    key: str | None = None
    labels: Mapping[str, str] = NO_LABELS
    schedule: str | Mapping[str, object] = "now"
    queue: str = "default"
    priority: int = 0
    ordering_key: str | None = None
    policy: Policy = Policy()  # except the next two fields
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
        return Spec(
            task=self.task,
            params=params,
            params_blob=params_blob,
            secrets=secrets,
            name=self.name,
            key=self.key,
            labels=self.labels,
            queue=self.queue,
            priority=self.priority,
            ordering_key=self.ordering_key,
            policy=_completed(self.policy, *self._choices(defaults)),
        )

    def _choices(self, defaults: TaskDefaults | None) -> tuple[int, timedelta | None]:
        retries, timeout = self.max_retries, self.timeout
        if defaults is not None:
            retries = defaults.max_retries if retries is None else retries
            timeout = defaults.timeout if timeout is None else timeout
        return DEFAULT_MAX_RETRIES if retries is None else retries, timeout


@lru_cache(1024)  # most jobs share a handful of policies
def policy_of(
    *,
    retry: RetryPolicy | None = None,
    start_within: float | None = None,
    overlap: str | None = None,
    misfire: str | None = None,
    catchup: float | None = None,
    on_failure: str | None = None,
) -> Policy:
    """Return the policy of a draft; durations are seconds, and None means the default."""
    default = Policy()
    return Policy(
        retry=retry or default.retry,
        start_within=None if start_within is None else timedelta(seconds=start_within),
        overlap=Overlap(overlap or default.overlap),
        misfire=Misfire(misfire or default.misfire),
        catchup=default.catchup if catchup is None else timedelta(seconds=catchup),
        on_failure=OnFailure(on_failure or default.on_failure),
    )


@lru_cache(1024)
def _completed(policy: Policy, max_retries: int, timeout: timedelta | None) -> Policy:
    return replace(policy, retry=replace(policy.retry, max_retries=max_retries), timeout=timeout)


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
