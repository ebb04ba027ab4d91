"""Quotas: which limit a request would pass."""

import pytest

from horae.core.decisions.quotas import NOTHING, UNLIMITED, Amount, Excess, Limits, excess

FULL = Amount(waiting=10, recurring=5, queues=frozenset({"a", "b"}), stored_bytes=1000)
LIMITS = Limits(waiting=10, recurring=5, queues=2, stored_bytes=1000)


@pytest.mark.parametrize(
    ("wanted", "resource"),
    [
        (Amount(waiting=1), "waiting"),
        (Amount(recurring=1), "recurring"),
        (Amount(queues=frozenset({"a", "c"})), "queues"),
        (Amount(stored_bytes=1), "stored_bytes"),
    ],
)
def test_what_would_pass_a_limit_is_named(wanted: Amount, resource: str) -> None:
    passed = excess(LIMITS, FULL, wanted)
    assert passed is not None
    assert (passed.resource, passed.used, passed.wanted) == (resource, passed.limit, 1)
    assert f"HORAE_MAX_{resource.upper()}" in str(passed)
    assert f"the limit is {passed.limit:,}" in str(passed)
    assert excess(UNLIMITED, FULL, wanted) is None


def test_what_fits_exactly_is_accepted() -> None:
    assert excess(LIMITS, NOTHING, FULL) is None


def test_a_limit_that_is_passed_already_refuses_only_what_adds_to_it() -> None:
    above = Amount(waiting=99, recurring=99, queues=frozenset({"a", "b", "c"}), stored_bytes=0)
    assert excess(LIMITS, above, Amount(queues=frozenset({"b"}), stored_bytes=1)) is None
    assert excess(LIMITS, above, Amount(waiting=1)) == Excess(resource="waiting", limit=10, used=99, wanted=1)


def test_a_million_jobs_and_ten_thousand_recurring_ones_are_within_the_defaults() -> None:
    wanted = Amount(waiting=1_000_000, recurring=10_000, queues=frozenset("abc"), stored_bytes=10**9)
    assert excess(Limits(), NOTHING, wanted) is None
