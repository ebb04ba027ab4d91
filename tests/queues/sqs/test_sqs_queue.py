"""What is particular to the queue on SQS; the conformance suite has what all queues do."""

import asyncio
import json
import time
from datetime import timedelta

import pytest

from horae.core.errors import Unavailable
from horae.queues.sqs import queue as sqs_queue
from horae.queues.sqs import receiver
from horae.queues.sqs.messages import body_of
from horae.queues.sqs.queue import SqsQueue
from tests.engines.aws_answers import Fault
from tests.engines.aws_faults import AwsFaults
from tests.queues.sqs.conftest import Connect, now, numbers, take, take_all, ticket


async def test_queues_and_classes_have_sqs_queues_of_their_own_once_they_are_needed(
    queue: SqsQueue, prefix: str
) -> None:
    await queue.state()
    assert await _names(queue) == set(), "whoever only looks creates none"
    await queue.offer([ticket(1), ticket(2, queue="mail", priority=7), ticket(3, priority=-7)], now=now())
    assert await _names(queue) == {
        f"{prefix}__{name}" for name in ("default__normal", "mail__high", "default__low", "refused")
    }


async def test_many_tickets_are_sent_and_taken_in_batches_of_ten(queue: SqsQueue) -> None:
    await queue.offer([ticket(number) for number in range(500)], now=now())
    taken = await take_all(queue, 500, limit=500)
    await queue.done(taken)
    assert sorted(numbers(taken)) == list(range(500))
    requests = {action: tally.requests for action, tally in queue.counters.by_action().items()}
    assert requests["SendMessageBatch"] == 50
    assert requests["DeleteMessageBatch"] <= 50 + len(taken) // 10
    assert (await queue.state()).tickets == 0


async def test_a_ticket_is_held_back_until_the_lead_before_its_time(queue: SqsQueue) -> None:
    offered = ticket(1, after=3)
    await queue.offer([offered], now=now())
    assert await take(queue, wait=0.3) == []
    [taken] = await take(queue)
    assert timedelta(seconds=-0.5) <= offered.wake_at - now() <= timedelta(seconds=1)
    assert taken.ticket == offered


async def test_a_ticket_that_is_still_held_back_is_sent_once_and_again_when_it_is_due_or_has_another_time(
    queue: SqsQueue,
) -> None:
    later, due = ticket(1, after=60), ticket(2)
    for _ in range(3):
        await queue.offer([later, due], now=now())
    await queue.offer([ticket(1, after=70)], now=now())
    assert (await queue.state()).tickets == 1 + 3 + 1


async def test_a_ticket_beyond_what_sqs_holds_back_is_hidden_until_its_time(
    queue: SqsQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqs_queue, "LONGEST_DELAY", timedelta())
    monkeypatch.setattr("horae.queues.sqs.receiver.KEPT_EARLY", timedelta(seconds=1))
    await queue.offer([ticket(1, after=4), ticket(2)], now=now())
    began = time.monotonic()
    assert numbers(await take_all(queue, 1)) == [2]
    assert numbers(await take(queue, wait=12)) == [1]
    assert 2.5 < time.monotonic() - began < 5
    assert queue.counters.by_action()["ChangeMessageVisibilityBatch"].requests == 1


async def test_a_ticket_that_is_given_back_comes_again_at_its_time_and_to_others(connect: Connect) -> None:
    one, other = await connect(), await connect()
    await one.offer([ticket(1)], now=now())
    taken = await take(one)
    await one.give_back(taken, now=now(), at=now() + timedelta(seconds=1))
    began = time.monotonic()
    assert numbers(await take(other)) == [1]
    assert time.monotonic() - began > 0.4


async def test_the_ticket_of_a_dead_taker_comes_again(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqs_queue, "VISIBILITY", 3)
    monkeypatch.setattr(receiver, "SPARE", 0.5)
    monkeypatch.setattr(receiver, "BUSY_POLL", 1)  # emulators go on with polls of those who are gone
    one, other = await connect(), await connect()
    await one.offer([ticket(1)], now=now())
    assert numbers(await take_all(one, 1)) == [1]
    await one._polls.close()  # and no more is heard of it
    assert numbers(await take(other, wait=12)) == [1]


async def test_what_a_process_received_and_did_not_take_goes_to_others(connect: Connect) -> None:
    one, other = await connect(), await connect()
    await one.offer([ticket(number) for number in range(5)], now=now())
    assert len(await take(one, limit=1)) == 1
    assert len(await take_all(other, 4)) == 4  # after a second, and not after the time for which they are hidden


async def test_tickets_of_other_tasks_and_full_queues_are_left_to_others(connect: Connect) -> None:
    one, other = await connect(), await connect()
    offered = [ticket(1), ticket(2, task="other"), ticket(3, queue="full"), ticket(4, queue="foreign")]
    await one.offer(offered, now=now())
    options = {"queues": ("default", "full"), "without": ("full",)}
    assert numbers(await take(one, **options)) == [1]  # type: ignore[arg-type]
    assert await take(one, **options, wait=0.5) == []  # type: ignore[arg-type]
    assert sorted(numbers(await take_all(other, 3, tasks=("t", "other"), wait=10))) == [2, 3, 4]


async def test_a_message_that_is_no_ticket_is_set_aside_and_reported(queue: SqsQueue, prefix: str) -> None:
    await queue.offer([ticket(1)], now=now())
    url = await _url(queue, f"{prefix}__default__normal")
    without_zone = json.dumps({**json.loads(body_of(ticket(3))), "wake_at": "2027-01-01T00:00:00"})
    for body in ("nonsense", '{"run": 1}', without_zone):
        await queue._client.call("SendMessage", {"QueueUrl": url, "MessageBody": body})
    assert numbers(await take(queue)) == [1]
    async with asyncio.timeout(10):
        while (await queue.state()).refused < 3:
            queue._state = None
            await take(queue, wait=0.05)
    refused = await _url(queue, f"{prefix}__refused")
    answer = await queue._client.call("ReceiveMessage", {"QueueUrl": refused, "MaxNumberOfMessages": 10})
    assert "nonsense" in {message["Body"] for message in answer["Messages"]}


async def test_a_message_that_is_taken_too_often_is_set_aside(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horae.queues.sqs.lines.MOST_TAKEN", 2)
    queue = await connect()
    await queue.offer([ticket(1)], now=now())
    for _ in range(2):
        await queue.give_back(await take_all(queue, 1), now=now(), at=now())
    assert await take(queue, wait=0.5) == []
    queue._state = None
    assert (await queue.state()).refused == 1


async def test_an_sqs_queue_that_was_deleted_is_created_again(
    queue: SqsQueue, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver, "BUSY_POLL", 1)  # emulators go on with polls of what was deleted
    await queue.offer([ticket(1)], now=now())
    await queue.done(await take_all(queue, 1))
    await queue._client.call("DeleteQueue", {"QueueUrl": await _url(queue, f"{prefix}__default__normal")})
    await queue.offer([ticket(2)], now=now())
    assert numbers(await take_all(queue, 1, wait=10)) == [2]


async def test_a_queue_that_another_process_makes_is_found(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horae.queues.sqs.receiver.FIND_EVERY", (0.2, 0.4))
    taker, other = await connect(), await connect()
    taking = asyncio.create_task(take(taker))
    await asyncio.sleep(0)
    await other.offer([ticket(1, queue="new")], now=now())
    assert numbers(await taking) == [1]


async def test_a_queue_is_polled_less_often_once_it_is_idle(
    queue: SqsQueue, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver, "BUSY_POLL", 1)
    monkeypatch.setattr(receiver, "IDLE_AFTER", 2)
    await queue.offer([ticket(1)], now=now())
    await queue.done(await take_all(queue, 1))
    assert await take(queue, wait=5) == []
    assert queue.counters.by_action()["ReceiveMessage"].calls == 4  # one with the ticket, two short ones, a long one


async def test_owners_are_named_to_the_service_so_that_it_lets_them_take_turns(queue: SqsQueue, prefix: str) -> None:
    await queue.offer([ticket(1, owner="a b/c")], now=now())
    url = await _url(queue, f"{prefix}__default__normal")
    answer = await queue._client.call("ReceiveMessage", {"QueueUrl": url, "MessageSystemAttributeNames": ["All"]})
    assert "MessageGroupId" in answer["Messages"][0].get("Attributes", {}) or not queue._is_fair


# --- faults


async def test_entries_of_a_batch_that_fail_are_sent_again(connect: Connect, endpoint: str) -> None:
    with AwsFaults(endpoint) as proxy:
        link = proxy.link()
        queue = await connect(link.url)
        await queue.offer([ticket(0)], now=now())
        link.chances = {Fault.FAILED_ENTRY: 0.5}
        await queue.offer([ticket(number) for number in range(1, 40)], now=now())
        link.heal()
        taken = await take_all(queue, 40)
        link.chances = {Fault.FAILED_ENTRY: 0.5}
        await queue.done(taken)
        assert link.fired[Fault.FAILED_ENTRY] > 1
        link.heal()
        assert sorted(numbers(taken)) == list(range(40))
        assert (await queue.state()).tickets == 0


@pytest.mark.parametrize("fault", [Fault.THROTTLED, Fault.CUT_BEFORE, Fault.ERROR, Fault.CUT_AFTER, Fault.ERROR_AFTER])
async def test_tickets_come_in_spite_of_faults_perhaps_twice(connect: Connect, endpoint: str, fault: Fault) -> None:
    with AwsFaults(endpoint) as proxy:
        link = proxy.link()
        queue = await connect(link.url)
        await queue.offer([ticket(0)], now=now())
        link.chances = {fault: 0.3}
        found: set[int] = set()
        await queue.offer([ticket(number) for number in range(1, 100)], now=now())
        async with asyncio.timeout(20):
            while len(found) < 100:
                try:
                    taken = await take(queue)
                    await queue.done(taken)
                except Unavailable:
                    continue  # as the loop of a worker does
                found |= set(numbers(taken))
        assert link.fired[fault] > 0
        link.heal()


async def test_a_ticket_that_is_delivered_twice_is_taken_twice(connect: Connect, endpoint: str) -> None:
    with AwsFaults(endpoint) as proxy:
        link = proxy.link()
        queue = await connect(link.url)
        await queue.offer([ticket(1)], now=now())
        taken = await take_all(queue, 1)
        done = link.next(Fault.DELIVERED_TWICE)
        await queue.offer([ticket(2)], now=now())
        taken += await take_all(queue, 2)
        await queue.done(taken)
        assert sorted(numbers(taken)) == [1, 1, 2]
        assert done.result(0) == "ReceiveMessage"


async def test_a_service_that_does_not_answer_is_unavailable(connect: Connect, endpoint: str) -> None:
    with AwsFaults(endpoint) as proxy:
        link = proxy.link()
        queue = await connect(link.url)
        await queue.offer([ticket(1)], now=now())
        link.chances = {Fault.CUT_BEFORE: 1.0}
        with pytest.raises(Unavailable):
            await queue.offer([ticket(2)], now=now())
        with pytest.raises(Unavailable):
            await take_all(queue, 2)
        link.heal()
        assert numbers(await take_all(queue, 1)) == [1]


# --- helpers


async def _names(queue: SqsQueue) -> set[str]:
    answer = await queue._client.call("ListQueues", {"QueueNamePrefix": f"{queue._prefix}__"})
    return {url.rpartition("/")[2] for url in answer.get("QueueUrls") or ()}


async def _url(queue: SqsQueue, name: str) -> str:
    return str((await queue._client.call("GetQueueUrl", {"QueueName": name}))["QueueUrl"])
