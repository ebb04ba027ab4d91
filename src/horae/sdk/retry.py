"""`Retry(...)`: the delays between the attempts of a task, checked where they are written."""

from dataclasses import dataclass
from datetime import timedelta

from horae.core.decisions.retry import RetryPolicy
from horae.core.errors import Invalid
from horae.core.limits import MAX_RETRY_FACTOR, MONTH

Seconds = float | timedelta


@dataclass(frozen=True, slots=True)
class Retry:
    """The delays between attempts: `initial` seconds, then `factor` times as long each, at most `max`.

    `jitter` makes each up to a quarter longer, so that what failed together is not retried together. How often to retry
    is `max_retries`.
    """

    initial: Seconds = 5
    factor: float = 2
    max: Seconds = 600
    jitter: bool = True

    def __post_init__(self) -> None:
        _delay("initial", self.initial)
        _delay("max", self.max)
        _refuse_unless_between("factor", self.factor, 1, MAX_RETRY_FACTOR)
        if not isinstance(self.jitter, bool):
            raise Invalid(f"Retry: jitter is True or False, not {self.jitter!r}", pointer="/retry/jitter")

    @property
    def policy(self) -> RetryPolicy:
        """The same as the engine knows it."""
        return RetryPolicy(
            initial=_delay("initial", self.initial),
            factor=float(self.factor),
            maximum=_delay("max", self.max),
            jitter=self.jitter,
        )


def retry_policy(retry: object) -> RetryPolicy | None:
    """Return the policy of `retry=`; raises Invalid for anything but a Retry."""
    if retry is None:
        return None
    if not isinstance(retry, Retry):
        raise Invalid(
            f"retry= must be a Retry(...), for example Retry(initial=1, factor=3), not {retry!r}", pointer="/retry"
        )
    return retry.policy


def _delay(name: str, value: Seconds) -> timedelta:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    _refuse_unless_between(name, seconds, 0, MONTH)
    return timedelta(seconds=seconds)


def _refuse_unless_between(name: str, value: object, least: float, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise Invalid(f"Retry: {name} is a number from {least:g} to {most:g}, not {value!r}", pointer=f"/retry/{name}")
