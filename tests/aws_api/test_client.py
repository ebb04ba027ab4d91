"""What the client of Amazon's services does with answers, errors and broken connections."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from horae.aws_api.client import ServiceClient
from horae.aws_api.counters import counted_as
from horae.aws_api.errors import (
    AccessDenied,
    ConditionFailed,
    NotSent,
    OutcomeUnknown,
    RequestConflict,
    RequestRefused,
    RequestThrottled,
    ResourceInUse,
    ResourceMissing,
    TransactionCancelled,
)
from horae.aws_api.retries import RetryBudget, RetryRule
from horae.core.errors import Unavailable
from tests.aws_api.scripted_service import CUT, HANG, Reply, ScriptedService, error, scripted

QUICK = RetryRule(first_delay=0.001, longest_delay=0.002)
THROTTLED = error("ProvisionedThroughputExceededException", "too much")
KEY = {"TableName": "t", "Key": {"id": {"S": "a"}}}


@pytest.fixture(autouse=True)
def _no_keys_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path_factory.mktemp("aws")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "credentials"))


@asynccontextmanager
async def opened(service: ScriptedService | str, **options: Any) -> AsyncIterator[ServiceClient]:
    url = service if isinstance(service, str) else service.url
    client = ServiceClient("dynamodb", region="eu-central-1", endpoint=url, **{"retries": QUICK, **options})
    await client.open()
    try:
        yield client
    finally:
        await client.close()


async def test_an_action_is_sent_with_its_target_and_its_answer_returned() -> None:
    async with scripted(Reply({"Item": {"id": {"S": "a"}}})) as service, opened(service) as client:
        assert await client.call("GetItem", KEY) == {"Item": {"id": {"S": "a"}}}
    [asked] = service.asked
    assert asked.headers["x-amz-target"] == "DynamoDB_20120810.GetItem"
    assert asked.headers["host"] == service.url.removeprefix("http://")
    assert asked.headers["content-type"] == "application/x-amz-json-1.0"
    assert asked.body == {**KEY, "ReturnConsumedCapacity": "TOTAL"}


async def test_requests_one_after_another_share_a_connection() -> None:
    async with scripted(Reply()) as service, opened(service) as client:
        for _ in range(5):
            await client.call("GetItem", KEY)
    assert service.connections == 1


async def test_no_more_requests_are_under_way_than_there_are_connections() -> None:
    async with scripted(Reply()) as service, opened(service, connections=3) as client:
        service.gate.clear()
        calls = asyncio.gather(*(client.call("GetItem", KEY) for _ in range(20)))
        await service.seen(3)
        service.gate.set()
        await calls
    assert service.most_at_once == 3
    assert len(service.asked) == 20


async def test_a_throttled_request_is_sent_again() -> None:
    async with scripted(THROTTLED, THROTTLED, Reply({"n": 1})) as service, opened(service) as client:
        assert await client.call("PutItem", {"TableName": "t"}) == {"n": 1}
    tally = client.counters.by_action()["PutItem"]
    assert (tally.calls, tally.requests, tally.throttled) == (1, 3, 2)


async def test_throttling_that_lasts_is_reported_as_such() -> None:
    async with scripted(THROTTLED) as service, opened(service) as client:
        with pytest.raises(RequestThrottled, match="PutItem: ProvisionedThroughputExceededException too much"):
            await client.call("PutItem", {"TableName": "t"})
    assert len(service.asked) == QUICK.attempts


async def test_retries_end_when_their_budget_is_used_up() -> None:
    async with (
        scripted(THROTTLED) as service,
        opened(service, retries=RetryRule(first_delay=0.001, budget=6)) as client,
    ):
        for _ in range(10):
            with pytest.raises(RequestThrottled):
                await client.call("GetItem", KEY)
    assert len(service.asked) == 10 + 6


async def test_successes_earn_retries_again() -> None:
    budget = RetryBudget(RetryRule(budget=1, earned=0.5))
    assert budget.delay(1) is not None
    assert budget.delay(1) is None
    budget.succeeded()
    assert budget.delay(1) is None
    budget.succeeded()
    assert budget.delay(1) is not None


def test_waits_before_further_tries_grow_up_to_a_limit_and_are_random() -> None:
    longest = RetryBudget(RetryRule(attempts=20), random_factor=lambda: 1.0)
    assert [longest.delay(attempt) for attempt in (1, 2, 3)] == [0.025, 0.05, 0.1]
    assert longest.delay(15) == 1.0
    assert RetryBudget(random_factor=lambda: 0.25).delay(2) == 0.0125


async def test_a_connection_that_is_cut_after_the_request_leaves_the_outcome_unknown() -> None:
    async with scripted(CUT, Reply()) as service, opened(service) as client:
        with pytest.raises(OutcomeUnknown):
            await client.call("UpdateItem", KEY, repeat_unknown=False)
    assert len(service.asked) == 1
    assert client.counters.total().unknown == 1


async def test_an_answer_to_a_repeated_request_says_that_it_may_be_an_echo() -> None:
    async with scripted(CUT, Reply({"n": 1}), Reply({"n": 2})) as service, opened(service) as client:
        first, second = await client.ask("UpdateItem", KEY), await client.ask("UpdateItem", KEY)
    assert (first.body, first.doubtful) == ({"n": 1}, True)
    assert (second.body, second.doubtful) == ({"n": 2}, False)


async def test_a_failed_condition_after_an_unknown_outcome_says_that_it_may_be_an_echo() -> None:
    failed = error("ConditionalCheckFailedException", Item={"fence": {"N": "3"}})
    async with scripted(CUT, failed) as service, opened(service) as client:
        with pytest.raises(ConditionFailed) as raised:
            await client.call("UpdateItem", KEY)
        assert raised.value.doubtful
        with pytest.raises(ConditionFailed) as raised:
            await client.call("UpdateItem", KEY)
    assert not raised.value.doubtful
    assert raised.value.item == {"fence": {"N": "3"}}


async def test_throttling_after_an_unknown_outcome_leaves_the_outcome_unknown() -> None:
    async with scripted(CUT, THROTTLED) as service, opened(service) as client:
        with pytest.raises(OutcomeUnknown):
            await client.call("UpdateItem", KEY)
    assert len(service.asked) == QUICK.attempts


@pytest.mark.parametrize("code", ["InternalServerError", "ServiceUnavailable", ""])
async def test_a_service_that_fails_leaves_the_outcome_unknown(code: str) -> None:
    async with scripted(error(code, status=500)) as service, opened(service) as client:
        with pytest.raises(OutcomeUnknown):
            await client.call("UpdateItem", KEY, repeat_unknown=False)


async def test_an_answer_that_is_no_json_is_told_by_its_status() -> None:
    async with opened_page(502) as (service, client):
        with pytest.raises(OutcomeUnknown, match="502"):
            await client.call("GetItem", KEY, repeat_unknown=False)
    assert len(service.asked) == 1


@asynccontextmanager
async def opened_page(status: int) -> AsyncIterator[tuple[ScriptedService, ServiceClient]]:
    """A load balancer's answer: a page for people."""
    page: Any = "<html>Bad Gateway</html>"
    async with scripted(Reply(page, status)) as service, opened(service) as client:
        yield service, client


async def test_a_request_without_an_answer_in_time_leaves_the_outcome_unknown() -> None:
    async with scripted(HANG) as service, opened(service, timeout=0.05) as client:
        with pytest.raises(OutcomeUnknown, match=r"did not answer within 0\.05 s"):
            await client.call("UpdateItem", KEY, repeat_unknown=False)


async def test_a_long_poll_may_take_longer_than_other_requests() -> None:
    async with scripted(Reply({"n": 1})) as service, opened(service, timeout=0.02) as client:
        service.gate.clear()
        call = asyncio.create_task(client.call("ReceiveMessage", {}, timeout=5))
        await asyncio.sleep(0.06)
        service.gate.set()
        assert await call == {"n": 1}


async def test_a_request_that_finds_nobody_was_certainly_not_done() -> None:
    async with scripted(Reply()) as service:
        url = service.url
    async with opened(url) as client:
        with pytest.raises(NotSent):
            await client.call("UpdateItem", KEY)
    assert client.counters.total().unsent == QUICK.attempts


async def test_a_cancelled_transaction_gives_a_reason_for_each_item() -> None:
    reasons = [
        {"Code": "None"},
        {"Code": "ConditionalCheckFailed", "Message": "The conditional request failed", "Item": {"n": {"N": "1"}}},
    ]
    cancelled = error("TransactionCanceledException", CancellationReasons=reasons)
    async with scripted(cancelled) as service, opened(service) as client:
        with pytest.raises(TransactionCancelled) as raised:
            await client.call("TransactWriteItems", {"TransactItems": []})
    assert [reason.code for reason in raised.value.reasons] == [None, "ConditionalCheckFailed"]
    assert raised.value.reasons[1].item == {"n": {"N": "1"}}
    assert len(service.asked) == 1


async def test_a_transaction_that_only_met_another_one_is_sent_again() -> None:
    conflict = error(
        "TransactionCanceledException", CancellationReasons=[{"Code": "None"}, {"Code": "TransactionConflict"}]
    )
    async with scripted(conflict, Reply({"n": 1})) as service, opened(service) as client:
        assert await client.call("TransactWriteItems", {"TransactItems": []}) == {"n": 1}
    async with scripted(conflict) as service, opened(service) as client:
        with pytest.raises(RequestConflict):
            await client.call("TransactWriteItems", {"TransactItems": []})
    assert client.counters.total().conflicts == QUICK.attempts


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("ResourceNotFoundException", ResourceMissing),
        ("QueueDoesNotExist", ResourceMissing),
        ("ResourceInUseException", ResourceInUse),
        ("ValidationException", RequestRefused),
    ],
)
async def test_what_repeating_does_not_change_is_sent_once(code: str, kind: type[RequestRefused]) -> None:
    async with scripted(error(code, "no")) as service, opened(service) as client:
        with pytest.raises(RequestRefused, match=f"DeleteTable: {code} no") as raised:
            await client.call("DeleteTable", {"TableName": "t"})
    assert type(raised.value) is kind
    assert raised.value.code == code
    assert len(service.asked) == 1


async def test_a_denied_request_names_the_action_and_is_tried_again_later() -> None:
    denied = error("AccessDeniedException", "not authorized to perform: dynamodb:PutItem")
    async with scripted(denied) as service, opened(service) as client:
        with pytest.raises(AccessDenied, match="dynamodb:PutItem"):
            await client.call("PutItem", {"TableName": "t"})
    assert issubclass(AccessDenied, Unavailable)  # so that background loops go on once it is allowed
    assert len(service.asked) == 1


async def test_a_clock_that_the_service_refuses_is_corrected_by_the_service_s() -> None:
    ahead = datetime.now(UTC) + timedelta(hours=3)
    date = {"Date": format_datetime(ahead, usegmt=True)}
    refused = Reply({"__type": "any#InvalidSignatureException", "message": "Signature expired"}, 400, date)
    async with scripted(refused, Reply({}, 200, date)) as service, opened(service) as client:
        await client.call("GetItem", KEY)
        await client.call("GetItem", KEY)
    stamps = [datetime.strptime(asked.headers["x-amz-date"], "%Y%m%dT%H%M%S%z") for asked in service.asked]
    assert stamps[0] < ahead - timedelta(hours=2)
    assert all(abs(stamp - ahead) < timedelta(minutes=1) for stamp in stamps[1:])


async def test_a_wrong_key_is_not_taken_for_a_wrong_clock() -> None:
    date = {"Date": format_datetime(datetime.now(UTC), usegmt=True)}
    refused = Reply({"__type": "any#InvalidSignatureException", "message": "does not match"}, 400, date)
    async with scripted(refused) as service, opened(service) as client:
        with pytest.raises(AccessDenied):
            await client.call("GetItem", KEY)
    assert len(service.asked) == 1


async def test_the_service_s_clock_is_shown_to_who_wants_to_know() -> None:
    seen: list[tuple[datetime, float, float]] = []
    at = datetime(2027, 1, 31, 9, tzinfo=UTC)
    reply = Reply({}, 200, {"Date": format_datetime(at, usegmt=True)})
    before = time.monotonic()
    async with scripted(reply) as service, opened(service, seen_date=lambda *now: seen.append(now)) as client:
        await client.call("GetItem", KEY)
    [(date, asked_at, answered_at)] = seen
    assert date == at
    assert before <= asked_at <= answered_at <= time.monotonic()


async def test_units_are_counted_by_verb_and_action() -> None:
    script = (
        Reply({"ConsumedCapacity": {"TableName": "t", "CapacityUnits": 0.5}}),
        Reply({"ConsumedCapacity": [{"CapacityUnits": 3.0}, {"CapacityUnits": 2.0}]}),
        Reply({"ConsumedCapacity": [{"CapacityUnits": 4.0, "ReadCapacityUnits": 1.0, "WriteCapacityUnits": 3.0}]}),
        Reply({"ConsumedCapacity": [{"CapacityUnits": 1.5}]}),
    )
    select, update = [{"Statement": ' select * FROM "t"'}], [{"Statement": 'UPDATE "t" SET a = 1'}]
    async with scripted(*script) as service, opened(service) as client:
        with counted_as("claim"):
            await client.call("Query", {"TableName": "t"})
            await asyncio.create_task(client.call("BatchExecuteStatement", {"Statements": update}))
        with counted_as("settle"):
            await client.call("TransactWriteItems", {"TransactItems": []})
        await client.call("BatchExecuteStatement", {"Statements": select})
    units = {
        place: (tally.read_units, tally.write_units) for place, tally in client.counters.by_verb_and_action().items()
    }
    assert units == {
        ("claim", "Query"): (0.5, 0.0),
        ("claim", "BatchExecuteStatement"): (0.0, 5.0),
        ("settle", "TransactWriteItems"): (1.0, 3.0),
        ("", "BatchExecuteStatement"): (1.5, 0.0),
    }
    assert client.counters.by_verb()["claim"].requests == 2
    assert client.counters.total().write_units == 8.0
