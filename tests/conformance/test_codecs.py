"""Codecs that the SQL stores share."""

from datetime import timedelta

import pytest

from horae.core.decisions.retry import RetryPolicy
from horae.core.model import Misfire, OnFailure, Overlap, Policy
from horae.stores.common.codecs import decode_policy, encode_policy

MINUTE = timedelta(minutes=1)


def test_a_policy_without_anything_special_takes_no_room() -> None:
    made = Policy(retry=RetryPolicy(max_retries=3, initial=timedelta(seconds=5), maximum=timedelta(minutes=10)))
    assert encode_policy(made) == encode_policy(Policy()) == "{}"


def test_of_a_policy_only_what_is_special_is_stored() -> None:
    assert encode_policy(Policy(timeout=MINUTE, catchup=timedelta(hours=1))) == '{"timeout":60.0}'


@pytest.mark.parametrize(
    "policy",
    [
        Policy(),
        Policy(retry=RetryPolicy(max_retries=0, initial=MINUTE, factor=3.0, maximum=2 * MINUTE, jitter=False)),
        Policy(timeout=MINUTE, start_within=2 * MINUTE, catchup=timedelta(0)),
        Policy(timeout=timedelta(days=300, microseconds=1), start_within=timedelta(microseconds=123_457)),
        Policy(overlap=Overlap.ALLOW, misfire=Misfire.ALL, on_failure=OnFailure.BLOCK),
    ],
)
def test_a_policy_comes_back_as_it_was(policy: Policy) -> None:
    assert decode_policy(encode_policy(policy)) == policy


def test_a_policy_that_was_stored_in_full_is_still_read() -> None:
    assert decode_policy('{"initial":5.0,"factor":2.0,"maximum":600.0,"timeout":null,"catchup":3600.0}') == Policy()


def test_a_policy_of_a_later_version_is_read_without_what_is_unknown() -> None:
    assert decode_policy('{"timeout":60,"overlap":"allow","new":1}') == Policy(timeout=MINUTE, overlap=Overlap.ALLOW)
