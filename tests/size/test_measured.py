"""The units that `horae size` reckons with are those that the verbs of the DynamoDB store use, by its own counters."""

import pytest

from horae.size import units
from horae.size.dynamodb import usage_of
from tests.size.measuring import CALLS, idle_units, measured, recurring_units

VERBS = {"create": units.CREATE, "claim": units.CLAIM, "start": units.START, "settle": units.SETTLE}


@pytest.mark.parametrize("batch", [1, 60])
def test_each_verb_uses_what_sizing_says(batch: int) -> None:
    found = measured(batch)
    for verb, constants in VERBS.items():
        expected, runs = usage_of([constants], size=1, batch=batch), CALLS * batch
        assert found[verb].write_units / runs == pytest.approx(expected.writes, rel=0.03), verb
        assert found[verb].read_units / runs == pytest.approx(expected.reads, abs=0.5), verb
        assert found[verb].requests / runs == pytest.approx(expected.requests, rel=0.25, abs=0.02), verb


def test_a_plain_one_shot_uses_at_most_five_and_a_half_write_units() -> None:
    found, runs = measured(60), CALLS * 60
    assert sum(found[verb].write_units for verb in ("create", "claim", "settle")) / runs <= 5.5


def test_a_recurring_run_uses_at_most_ten_write_units_and_no_more_than_sizing_says() -> None:
    together = usage_of([units.FIRE, units.CLAIM, units.SETTLE], size=1, batch=10).writes
    seldom = recurring_units(jobs=10, every=10, seconds_long=60)
    assert seldom <= 10
    assert seldom == pytest.approx(together, rel=0.1)
    assert recurring_units(jobs=10, every=1, seconds_long=20) <= seldom, "several slots are fired at once"


def test_an_idle_node_uses_what_sizing_says() -> None:
    writes, reads = idle_units(seconds_long=300)
    assert writes == pytest.approx(units.IDLE_WRITES_NODE_HOUR, rel=0.1)
    assert reads == pytest.approx(units.IDLE_READS_NODE_HOUR, rel=0.1)
