"""Backoff: the delays that users are promised."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from horae.core.decisions.retry import RetryPolicy

EXACT = RetryPolicy(jitter=False)


def seconds(policy: RetryPolicy, attempt: int, random_factor: float = 0.0) -> float:
    return policy.delay_after(attempt, random_factor).total_seconds()


def test_the_default_delays_double_from_five_seconds() -> None:
    assert [seconds(EXACT, attempt) for attempt in (1, 2, 3)] == [5, 10, 20]


def test_a_delay_stops_growing_at_the_maximum() -> None:
    assert seconds(EXACT, 50) == 600
    assert seconds(EXACT, 100_000) == 600


def test_a_maximum_below_the_first_delay_wins() -> None:
    assert seconds(RetryPolicy(initial=timedelta(hours=1), maximum=timedelta(seconds=1), jitter=False), 1) == 1


@given(attempt=st.integers(1, 2000), random_factor=st.floats(0, 1, exclude_max=True), factor=st.floats(0, 100))
def test_jitter_adds_up_to_a_quarter_and_never_takes_away(attempt: int, random_factor: float, factor: float) -> None:
    exact = RetryPolicy(factor=factor, jitter=False).delay_after(attempt, random_factor)
    jittered = RetryPolicy(factor=factor).delay_after(attempt, random_factor)
    assert exact <= jittered <= exact * 1.25 + timedelta(microseconds=1)
