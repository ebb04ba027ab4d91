"""What a benchmark on DynamoDB and SQS reports of requests, units and dollars."""

import json
from pathlib import Path

from horae.aws_api.counters import Counters, RequestTally
from horae.proof.bench.requests import (
    ServiceUsage,
    is_counted,
    read_usage,
    usage_figures,
    usage_of,
    write_usage,
)
from horae.size.prices import Prices


def test_units_and_dollars_are_told_for_a_job_and_for_a_million() -> None:
    usage = ServiceUsage(requests=200, sqs_requests=300, write_units=5000, read_units=1000)
    prices = Prices(write_units_million=0.625, read_units_million=0.125, sqs_requests_million=0.4)
    figures = usage_figures(usage, 1000, prices)
    assert figures is not None
    assert (figures["write_units"], figures["read_units"]) == (5, 1)
    assert (figures["requests"], figures["sqs_requests"]) == (0.2, 0.3)
    assert figures["dollars_per_million"] == {"writes": 3.125, "reads": 0.125, "sqs": 0.12, "total": 3.37}


def test_a_store_that_counts_nothing_has_no_units() -> None:
    assert usage_figures(ServiceUsage(), 1000, Prices()) is None
    assert not is_counted("postgresql://host/db", "redis://host")
    assert is_counted("dynamodb://eu-west-1/x", "store")


def test_requests_of_sqs_are_told_apart() -> None:
    usage = usage_of({"Query": RequestTally(requests=2, read_units=3.0), "SendMessageBatch": RequestTally(requests=5)})
    assert usage == ServiceUsage(requests=2, sqs_requests=5, read_units=3.0)


def test_the_usage_of_all_processes_is_added_up(tmp_path: Path) -> None:
    (tmp_path / "77.usage").write_text(json.dumps({"requests": 4, "write_units": 9.0}))
    before = read_usage(tmp_path)
    counters = Counters()
    counters.of("BatchWriteItem").requests += 3
    assert write_usage(tmp_path)  # of this process, which then counts twice: itself, and its file
    assert read_usage(tmp_path).requests - before.requests >= 3 + 3
    assert before.write_units >= 9
    assert not write_usage(tmp_path / "gone")
