"""The options of `using(...)` and `@app.schedule(...)`, checked against the same limits as in the REST API."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Literal, TypedDict

import msgspec

from horae.core.decisions.retry import RetryPolicy
from horae.core.drafts import Draft, policy_of
from horae.core.errors import Fault, Invalid
from horae.core.limits import Duration, Key, Labels, MaxRetries, Name, Priority, Queue, Timeout
from horae.core.model import NO_LABELS
from horae.core.owners import EVERY_OWNER
from horae.core.schedule.timestamps import rfc3339
from horae.core.wording.fault_words import plain_words
from horae.core.wording.json_schema import value_faults
from horae.sdk.retry import Retry, Seconds, retry_policy

MAX_OWNER = 200  # characters
OnFailureChoice = Literal["continue", "block"]
OverlapChoice = Literal["allow", "skip", "buffer_one"]
MisfireChoice = Literal["skip", "once", "all"]


class JobOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a job, checked; None means the default of the task or of Horae."""

    queue: Queue | None = None
    priority: Priority | None = None
    ordering_key: Key | None = None
    key: Key | None = None
    name: Name | None = None
    labels: Labels | None = None
    max_retries: MaxRetries | None = None
    retry: RetryPolicy | None = None
    timeout: Timeout | None = None
    start_within: Duration | None = None
    on_failure: OnFailureChoice | None = None
    overlap: OverlapChoice | None = None
    misfire: MisfireChoice | None = None
    catchup: Duration | None = None
    idempotency_key: Key | None = None

    def draft(self, task: str, params: str, schedule: str | Mapping[str, object], secrets: str | None = None) -> Draft:
        """Return the draft of a job with these options."""
        return Draft(
            task=task,
            params=params,
            secrets=secrets,
            name=self.name,
            key=self.key,
            labels=MappingProxyType(self.labels) if self.labels else NO_LABELS,
            schedule=schedule,
            queue=self.queue,
            priority=self.priority,
            ordering_key=self.ordering_key,
            policy=policy_of(
                start_within=self.start_within,
                overlap=self.overlap,
                misfire=self.misfire,
                catchup=self.catchup,
                on_failure=self.on_failure,
            ),
            retry=self.retry,
            max_retries=self.max_retries,
            timeout=None if self.timeout is None else timedelta(seconds=self.timeout),
        )


def job_options(given: Mapping[str, Any]) -> JobOptions:
    """Check the options and return them; durations may be seconds or timedeltas. Raises Invalid."""
    plain = {name: _seconds(value) for name, value in given.items() if value is not None}
    retry = plain.pop("retry", None)
    try:
        checked = msgspec.convert(plain, JobOptions)
    except msgspec.ValidationError as exc:
        detail, _, place = str(exc).partition(" - at `$.")
        name = place.rstrip("`") or "using"
        faults = value_faults(msgspec.json.schema(JobOptions), plain, "") or [Fault(f"/{name}", plain_words(detail))]
        found = faults[0]
        raise Invalid(f"{found.pointer[1:].replace('/', '.')} {found.detail}", pointer=found.pointer) from exc
    for name, value in plain.items():
        _refuse_unstorable_text(name, value)
    return checked if retry is None else msgspec.structs.replace(checked, retry=_policy(retry))


def _policy(retry: object) -> RetryPolicy | None:
    return retry if isinstance(retry, RetryPolicy) else retry_policy(retry)


def _refuse_unstorable_text(name: str, value: Any) -> None:
    """Refuse text that would fail in the store, together with everything in the same write."""
    for text in (*value, *value.values()) if isinstance(value, Mapping) else (value,):
        if isinstance(text, str) and ("\0" in text or not _is_encodable(text)):
            raise Invalid(
                f"{name}: text cannot contain the character NUL or half of a surrogate pair", pointer=f"/{name}"
            )


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitOptions:
    """All options of a submission."""

    job: JobOptions = JobOptions()
    at: datetime | None = None
    delay: timedelta | None = None
    owner: str | None = None  # None: the application's
    secrets: str | None = field(default=None, repr=False)
    tx: Any = None

    def schedule(self, now: datetime) -> str | Mapping[str, object]:
        """Return the schedule of the job, as a draft takes it."""
        if self.at is None and self.delay is None:
            return "now"
        try:
            at = self.at or now + (self.delay or timedelta())
        except OverflowError as exc:
            raise Invalid(f"delay= is too long: {self.delay}", pointer="/schedule") from exc
        return {"type": "at", "time": rfc3339(at)}


class CommonOptions(TypedDict, total=False):
    """The keyword arguments that `using(...)` and `@app.schedule(...)` share; None is the same as leaving one out."""

    queue: str | None
    priority: int | None
    ordering_key: str | None
    on_failure: OnFailureChoice | None
    name: str | None
    labels: Mapping[str, str] | None
    max_retries: int | None
    retry: Retry | None
    timeout: Seconds | None
    start_within: Seconds | None


class UsingOptions(CommonOptions, total=False):
    """The keyword arguments of `using(...)`."""

    at: datetime | None
    delay: Seconds | None
    key: str | None
    owner: str | None
    secrets: Mapping[str, Any] | None
    idempotency_key: str | None
    tx: Any


class ScheduleOptions(CommonOptions, total=False):
    """The keyword arguments of `@app.schedule(...)` in addition to key and parameters."""

    overlap: OverlapChoice | None
    misfire: MisfireChoice | None
    catchup: Seconds | None


def with_options(options: SubmitOptions, using: UsingOptions) -> SubmitOptions:
    """Return the options after another `using(...)`; None changes nothing."""
    given: dict[str, Any] = {name: value for name, value in using.items() if value is not None}
    known = UsingOptions.__annotations__
    if unknown := given.keys() - known.keys():
        raise TypeError(f"using() has no {', '.join(sorted(unknown))}; it has {', '.join(known)}")
    at, delay, owner, secrets, tx = (given.pop(name, None) for name in ("at", "delay", "owner", "secrets", "tx"))
    if at is not None and delay is not None:
        raise TypeError("a job is due at an instant (at=) or after a delay (delay=), not both")
    if at is not None:
        options = replace(options, at=_aware(at), delay=None)
    if delay is not None:
        options = replace(options, at=None, delay=_delay(delay))
    if owner is not None:
        options = replace(options, owner=checked_owner(owner))
    if secrets is not None:
        options = replace(options, secrets=_secrets(secrets))
    if tx is not None:
        options = replace(options, tx=tx)
    if given:
        options = replace(options, job=job_options(msgspec.structs.asdict(options.job) | given))
    return options


def checked_owner(owner: object) -> str:
    """Return the owner of jobs; raises Invalid for one that nobody can be."""
    if not isinstance(owner, str) or not 1 <= len(owner) <= MAX_OWNER or owner == EVERY_OWNER:
        raise Invalid(
            f"owner= must be a text of 1 to {MAX_OWNER} characters other than {EVERY_OWNER!r}, not {owner!r}",
            pointer="/owner",
        )
    _refuse_unstorable_text("owner", owner)
    return owner


def _aware(at: datetime) -> datetime:
    if not isinstance(at, datetime):
        raise TypeError(f"at= must be a datetime, not {at!r}; for a time span use delay=")
    if at.tzinfo is None or at.utcoffset() is None:
        raise Invalid(
            "at= needs a time zone to mean an instant; use datetime.now(UTC) + …, or"
            " datetime(…, tzinfo=ZoneInfo('Europe/Paris'))",
            pointer="/schedule",
        )
    return at.astimezone(UTC)


def _delay(delay: Seconds) -> timedelta:
    try:
        span = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)
    except (TypeError, ValueError, OverflowError) as exc:
        raise Invalid(f"delay= must be a timedelta or a number of seconds, not {delay!r}", pointer="/schedule") from exc
    if span < timedelta():
        raise Invalid(f"delay= must not be negative, but is {delay!r}", pointer="/schedule")
    return span


def _secrets(secrets: Mapping[str, Any]) -> str:
    if not isinstance(secrets, Mapping):
        raise TypeError("secrets= must be a dict of parameters")
    try:
        return msgspec.json.encode(secrets).decode()
    except (TypeError, ValueError) as exc:
        raise TypeError(f"secrets= cannot be sent as JSON ({exc})") from exc


def _seconds(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value
