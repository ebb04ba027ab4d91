"""How a task is to be run this time: what `using(...)` takes, checked by the same limits as over REST."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Literal, TypedDict

import msgspec

from horae.core import values
from horae.core.drafts import Draft
from horae.core.errors import Invalid
from horae.core.limits import Duration, Key, Labels, MaxRetries, Name, Priority, Queue, Timeout
from horae.core.model import NO_LABELS, Misfire, OnFailure, Overlap, Policy
from horae.core.schedule.timestamps import rfc3339

Seconds = float | timedelta
OnFailureChoice = Literal["continue", "block"]
OverlapChoice = Literal["allow", "skip", "buffer_one"]
MisfireChoice = Literal["skip", "once", "all"]


class Choices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What can be said of any job; None leaves it to the task and to the defaults."""

    queue: Queue | None = None
    priority: Priority | None = None
    ordering_key: Key | None = None
    key: Key | None = None
    name: Name | None = None
    labels: Labels | None = None
    max_retries: MaxRetries | None = None
    timeout: Timeout | None = None
    start_within: Duration | None = None
    on_failure: OnFailureChoice | None = None
    overlap: OverlapChoice | None = None
    misfire: MisfireChoice | None = None
    catchup: Duration | None = None
    idempotency_key: Key | None = None

    def draft(self, task: str, params: str, schedule: str | Mapping[str, object], secrets: str | None = None) -> Draft:
        """A job of these choices."""
        return Draft(
            task=task,
            params=params,
            secrets=secrets,
            name=self.name,
            key=self.key,
            labels=MappingProxyType(self.labels) if self.labels else NO_LABELS,
            schedule=schedule,
            queue=self.queue or "default",
            priority=self.priority or 0,
            ordering_key=self.ordering_key,
            policy=self._policy(),
            max_retries=self.max_retries,
            timeout=_duration(self.timeout),
        )

    def _policy(self) -> Policy:
        policy = Policy(start_within=_duration(self.start_within), on_failure=OnFailure(self.on_failure or "continue"))
        if self.overlap is not None:
            policy = values.replace(policy, overlap=Overlap(self.overlap))
        if self.misfire is not None:
            policy = values.replace(policy, misfire=Misfire(self.misfire))
        return policy if self.catchup is None else values.replace(policy, catchup=timedelta(seconds=self.catchup))


def choices(given: Mapping[str, Any]) -> Choices:
    """Checked choices; durations may be seconds or timedeltas. Raises Invalid."""
    plain = {name: _seconds(value) for name, value in given.items() if value is not None}
    try:
        checked = msgspec.convert(plain, Choices)
    except msgspec.ValidationError as exc:
        detail, _, place = str(exc).partition(" - at `$.")
        name = place.rstrip("`") or "using"
        raise Invalid(f"{name}: {detail[:1].lower()}{detail[1:]}", pointer=f"/{name}") from exc
    for name, value in plain.items():
        _refuse_what_no_store_holds(name, value)
    return checked


def _refuse_what_no_store_holds(name: str, value: Any) -> None:
    """Such text would fail in the store, and with it whatever is written together with it."""
    for text in (*value, *value.values()) if isinstance(value, Mapping) else (value,):
        if isinstance(text, str) and ("\0" in text or not _is_whole(text)):
            raise Invalid(
                f"{name}: text cannot hold the character NUL, nor half of a surrogate pair", pointer=f"/{name}"
            )


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Everything that `using(...)` was told."""

    choices: Choices = Choices()
    at: datetime | None = None
    delay: timedelta | None = None
    secrets: str | None = field(default=None, repr=False)
    tx: Any = None

    def schedule(self, now: datetime) -> str | Mapping[str, object]:
        """When it is to run, in the form of a draft."""
        if self.at is None and self.delay is None:
            return "now"
        try:
            at = self.at or now + (self.delay or timedelta())
        except OverflowError as exc:
            raise Invalid(f"delay= is too long: {self.delay}", pointer="/schedule") from exc
        return {"type": "at", "time": rfc3339(at)}


class Using(TypedDict, total=False):
    """The keywords of `using(...)`; None is the same as leaving one out."""

    at: datetime | None
    delay: Seconds | None
    queue: str | None
    priority: int | None
    ordering_key: str | None
    on_failure: OnFailureChoice | None
    key: str | None
    name: str | None
    labels: Mapping[str, str] | None
    max_retries: int | None
    timeout: Seconds | None
    start_within: Seconds | None
    secrets: Mapping[str, Any] | None
    idempotency_key: str | None
    tx: Any


class Repeating(TypedDict, total=False):
    """The keywords of `@app.schedule(...)` beside its key and parameters; None is the same as leaving one out."""

    queue: str | None
    priority: int | None
    ordering_key: str | None
    on_failure: OnFailureChoice | None
    name: str | None
    labels: Mapping[str, str] | None
    max_retries: int | None
    timeout: Seconds | None
    start_within: Seconds | None
    overlap: OverlapChoice | None
    misfire: MisfireChoice | None
    catchup: Seconds | None


def revised(options: Options, using: Using) -> Options:
    """The options after another `using(...)`; what is None stays as it is."""
    given: dict[str, Any] = {name: value for name, value in using.items() if value is not None}
    if unknown := given.keys() - Using.__annotations__.keys():
        raise TypeError(f"using() has no {', '.join(sorted(unknown))}; it has {', '.join(Using.__annotations__)}")
    at, delay, secrets, tx = (given.pop(name, None) for name in ("at", "delay", "secrets", "tx"))
    if at is not None and delay is not None:
        raise TypeError("a job is due at an instant (at=) or after a while (delay=), not both")
    if at is not None:
        options = replace(options, at=_aware(at), delay=None)
    if delay is not None:
        options = replace(options, at=None, delay=_delay(delay))
    if secrets is not None:
        options = replace(options, secrets=_secrets(secrets))
    if tx is not None:
        options = replace(options, tx=tx)
    if given:
        options = replace(options, choices=choices(msgspec.structs.asdict(options.choices) | given))
    return options


def _aware(at: datetime) -> datetime:
    if not isinstance(at, datetime):
        raise TypeError(f"at= is a datetime, not {at!r}; for a time span use delay=")
    if at.tzinfo is None or at.utcoffset() is None:
        raise Invalid(
            "at= has no time zone, so it is not known which instant it means; use datetime.now(UTC) + …, or"
            " datetime(…, tzinfo=ZoneInfo('Europe/Paris'))",
            pointer="/schedule",
        )
    return at.astimezone(UTC)


def _delay(delay: Seconds) -> timedelta:
    try:
        span = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)
    except (TypeError, ValueError, OverflowError) as exc:
        raise Invalid(f"delay= is a timedelta or a number of seconds, not {delay!r}", pointer="/schedule") from exc
    if span < timedelta():
        raise Invalid(f"delay= is not negative; {delay!r} is", pointer="/schedule")
    return span


def _secrets(secrets: Mapping[str, Any]) -> str:
    if not isinstance(secrets, Mapping):
        raise TypeError("secrets= is a dict of parameters")
    try:
        return msgspec.json.encode(secrets).decode()
    except (TypeError, ValueError) as exc:
        raise TypeError(f"secrets= cannot be sent as JSON ({exc})") from exc


def _seconds(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value


def _duration(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
