"""The arithmetic of `horae size`, against examples that were worked out by hand."""

import json
import math
from pathlib import Path

import pytest

from horae.core.errors import Misconfigured
from horae.size import units
from horae.size.dynamodb import batch_of, dynamodb_quotes, idle_line, kilobytes, usage_of
from horae.size.estimate import BillLine, Quote, figure
from horae.size.load import MONTH_SECONDS, PlannedLoad, load_of
from horae.size.postgres import postgres_quote
from horae.size.prices import Prices, read_prices
from horae.size.units import VerbUnits

PRICES = Prices()


def line(quote: Quote, item: str) -> BillLine:
    [found] = [line for line in quote.lines if line.item == item]
    return found


def need(quote: Quote, what: str) -> str:
    [found] = [need.amount for need in quote.needs if need.what == what]
    return found


def on_demand(load: PlannedLoad, prices: Prices = PRICES) -> Quote:
    return dynamodb_quotes(load, prices)[0]


def test_a_month_has_730_hours() -> None:
    assert MONTH_SECONDS == 2_628_000


def test_what_a_run_uses_is_the_sum_of_its_verbs() -> None:
    verbs = (
        VerbUnits(sized=1, fixed=2, per_call=4, requests_per_25=2, requests_per_call=1),
        VerbUnits(sized=1, reads=0.5),
    )
    one = usage_of(verbs, size=1, batch=1)
    assert (one.writes, one.reads, one.requests) == (8, 0.5, 3)
    fifty_of_2_kb = usage_of(verbs, size=2, batch=50)
    assert fifty_of_2_kb.writes == pytest.approx(2 * 2 + 2 + 4 / 50)
    assert fifty_of_2_kb.requests == pytest.approx((2 * 2 + 1) / 50)  # two requests of 25 for each of two, and one more


def test_a_row_takes_a_unit_for_each_kilobyte_with_its_payload() -> None:
    assert kilobytes(load_of(rate=1, payload_bytes=1024 - units.ROW_BYTES)) == 1
    assert kilobytes(load_of(rate=1, payload_bytes=1025 - units.ROW_BYTES)) == 2


def test_a_thousand_jobs_a_second_on_demand() -> None:
    """2,628 million jobs a month; each 3 nodes write 333 a second, so 33 together."""
    load = load_of(rate=1000, task_seconds=0.05, nodes=3)
    quote = on_demand(load)
    assert batch_of(load, 3) == pytest.approx(33.33, rel=0.001)
    create, claim, settle = units.CREATE, units.CLAIM, units.SETTLE
    per_call = create.per_call + claim.per_call + settle.per_call
    writes = 3 + create.fixed + claim.fixed + settle.fixed + per_call / (1000 / 3 * 0.1)
    assert line(quote, "writes of one-shots").dollars == pytest.approx(2628 * writes * 0.625)
    assert line(quote, "reads").dollars == pytest.approx(
        2628 * 0.125 * (create.reads + claim.reads + settle.reads + claim.per_call_reads / (1000 / 3 * 0.1))
    )
    assert line(quote, "nodes").dollars == pytest.approx(3 * 2 * 730 * 0.03625)


def test_a_task_that_takes_longer_costs_the_write_of_its_start() -> None:
    short, long = (on_demand(load_of(rate=1000, task_seconds=each, nodes=3)) for each in (0.1, 0.2))
    difference = line(long, "writes of one-shots").dollars - line(short, "writes of one-shots").dollars
    assert difference == pytest.approx(2628 * (units.START.sized + units.START.fixed) * 0.625, rel=0.02)


def test_storage_is_the_history_with_its_indexes() -> None:
    quote = on_demand(load_of(rate=100, payload_bytes=500, retention_days=10))
    runs, hints = 100 * 86_400 * 10, 100 * 86_400
    bytes_kept = runs * (units.ROW_BYTES + 500 + units.INDEX_BYTES + units.ITEM_OVERHEAD) + hints * units.HINT_BYTES
    assert line(quote, "storage").dollars == pytest.approx(bytes_kept / 1e9 * 0.25)


def test_sqs_takes_three_calls_for_each_ten_tickets_and_a_poll_in_twenty_seconds() -> None:
    quote = on_demand(load_of(rate=1000, task_seconds=0.01, nodes=3, queues=2))
    calls, polls = 2628e6 * 3 / 10, 3 * 2 * 2_628_000 / 20
    assert line(quote, "SQS").dollars == pytest.approx((calls + polls) / 1e6 * 0.4)
    assert need(quote, "SQS queues") == "2"


def test_partitions_and_shards_are_planned_with_700_units_at_the_peak() -> None:
    quote = on_demand(load_of(rate=1000, peak=10_000, payload_bytes=0))
    assert need(quote, "partitions of runs") == str(math.ceil(30_000 / 700)) == "43"
    assert need(quote, "hint shards of a lane") == str(math.ceil(10_000 / 700)) == "15"
    assert need(on_demand(load_of(rate=100_000)), "hint shards of a lane") == "64"


def test_provisioned_capacity_is_for_seven_tenths_of_use() -> None:
    load = load_of(rate=0, recurring=700, task_seconds=0.01, nodes=3)
    quote = dynamodb_quotes(load, PRICES)[1]
    fired = usage_of((units.FIRE, units.CLAIM, units.SETTLE), size=1, batch=700 / 3 * 0.1)
    workers = 3
    capacity = math.ceil((700 * fired.writes + workers * units.IDLE_WRITES_NODE_HOUR / 3600) / 0.7)
    assert line(quote, "write capacity").dollars == pytest.approx(capacity * 730 * 0.00065)


def test_an_idle_cluster_of_three_nodes_costs_less_than_ten_dollars_a_month() -> None:
    bill = idle_line(3, PRICES)
    by_hand = 3 * 730 * (units.IDLE_WRITES_NODE_HOUR * 0.625 + units.IDLE_READS_NODE_HOUR * 0.125) / 1e6
    assert bill.dollars == pytest.approx(by_hand)
    assert bill.dollars <= 10


def test_workers_have_a_slot_for_each_run_at_a_time() -> None:
    quote = on_demand(load_of(rate=100, peak=1000, task_seconds=2))
    assert need(quote, "worker processes") == "20"  # 1,000 × 2 s = 2,000 at a time, 100 in each


def test_postgresql_has_two_zones_and_as_many_databases_as_were_measured_to_be_enough() -> None:
    quote = postgres_quote(load_of(rate=10_000, peak=30_000), PRICES)
    assert need(quote, "databases") == "2 × 2 vCPU"
    assert line(quote, "databases").dollars == pytest.approx(2 * 2 * 2 * 730 * 0.084)
    assert line(quote, "Redis").dollars == pytest.approx(4 * 730 * 0.126)
    small = postgres_quote(load_of(rate=10, retention_days=1, payload_bytes=300), PRICES)
    assert line(small, "storage").dollars == pytest.approx(10 * 86_400 * 1000 / 1e9 * 2 * 0.115)
    assert all(each.item != "Redis" for each in small.lines)


def test_every_line_shows_the_arithmetic_that_gives_its_dollars() -> None:
    """Where a line is one product, its factors are read back and multiplied."""
    quote = postgres_quote(load_of(rate=10_000, peak=30_000), PRICES)
    factors = [part.strip(" $h").split()[0] for part in line(quote, "databases").arithmetic.split("×")]
    assert math.prod(float(each.strip("$")) for each in factors) == pytest.approx(line(quote, "databases").dollars)


def test_contradicting_figures_are_refused() -> None:
    with pytest.raises(Misconfigured, match="less than the mean"):
        load_of(rate=10, peak=5)
    with pytest.raises(Misconfigured, match="blobs"):
        load_of(rate=10, payload_bytes=100_000)


def test_prices_of_another_region_replace_the_defaults_and_need_their_date(tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    path.write_text(json.dumps({"region": "eu-central-1", "as_of": "2026-10", "write_units_million": 0.75}))
    prices = read_prices(path)
    assert (prices.region, prices.write_units_million, prices.read_units_million) == ("eu-central-1", 0.75, 0.125)
    first, other = (on_demand(load_of(rate=100), each) for each in (PRICES, prices))
    ratio = line(other, "writes of one-shots").dollars / line(first, "writes of one-shots").dollars
    assert ratio == pytest.approx(0.75 / 0.625)

    for text, problem in (
        ("[]", "a JSON object"),
        ("{", "prices.json"),
        ('{"region": "x"}', "as_of"),
        ('{"as_of": "2026-10", "wirte_units": 1}', "wirte_units"),
        ('{"as_of": "2026-10", "write_units_million": "much"}', "write_units_million"),
    ):
        path.write_text(text)
        with pytest.raises(Misconfigured, match=problem):
            read_prices(path)


def test_figures_are_written_for_people() -> None:
    assert [figure(each) for each in (26.28e9, 2.628e6, 1234.4, 0.125, 3)] == [
        "26.28 billion",
        "2.63 million",
        "1,234",
        "0.125",
        "3",
    ]
