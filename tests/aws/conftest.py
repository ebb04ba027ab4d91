"""Functions in Lambda, called as Lambda does: with messages of an SQS queue, or a schedule's event, and a context."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from horae.adapters import make_queue, make_store, opened_store
from horae.aws import planner_handler, worker_handler
from horae.aws.environment import Environment
from horae.core.model import Run, RunId
from horae.core.tickets import Ticket
from horae.ports.store import Store
from tests.conformance.builders import one_shot
from tests.engines import aws_client
from tests.engines.servers import ministack_url, own_name

Document = dict[str, Any]

SCHEDULED = {  # of an EventBridge rule with `rate(1 minute)`
    "version": "0",
    "id": "53dc4d37-cffa-4f76-80c9-8b7d4a4d2eaa",
    "detail-type": "Scheduled Event",
    "source": "aws.events",
    "account": "123456789012",
    "time": "2027-01-31T09:00:00Z",
    "region": "us-east-1",
    "resources": ["arn:aws:events:us-east-1:123456789012:rule/horae-planner"],
    "detail": {},
}


class Context:
    """What Lambda says of an invocation that has some seconds."""

    function_name = "horae-worker"
    memory_limit_in_mb = "512"
    aws_request_id = "c6af9ac6-7b61-11e6-9a41-93e8deadbeef"

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds

    def get_remaining_time_in_millis(self) -> int:
        return max(int((self._deadline - time.monotonic()) * 1000), 0)


class Account:
    """An account with an SQS queue, a store, and functions of one application."""

    def __init__(self, store: str, prefix: str, notes: Path) -> None:
        self.store_url = store
        self.prefix = prefix
        self.queue_url = f"sqs://us-east-1/{prefix}?endpoint={ministack_url()}"
        self.lead = timedelta(seconds=1)
        self._notes = notes

    # --- jobs

    def submit(self, task: str, *, after: float = 0.0, offered: bool = True, **params: object) -> RunId:
        """Create a one-shot with its ticket."""
        at = datetime.now(UTC) + timedelta(seconds=after)
        run = one_shot(at, task=task, params=json.dumps(params))

        async def create(store: Store) -> None:
            await store.create([run])
            if offered:
                await self._offer(Ticket.of(run))

        self.in_store(create)
        return run.id

    def offer_again(self, run_id: RunId) -> None:
        """Offer the ticket of a run once more."""

        async def offer(store: Store) -> None:
            await self._offer(Ticket.of((await store.runs([run_id]))[run_id]))

        self.in_store(offer)

    async def _offer(self, ticket: Ticket) -> None:
        queue = make_queue(self.queue_url, lead=self.lead)
        assert queue is not None
        await queue.open()
        try:
            await queue.offer([ticket], now=datetime.now(UTC))
        finally:
            await queue.close()

    def run_of(self, run_id: RunId) -> Run:
        async def read(store: Store) -> Run:
            return (await store.runs([run_id]))[run_id]

        return self.in_store(read)

    def in_store(self, act: Any) -> Any:
        """Do something with the store, as another process."""

        async def main() -> Any:
            async with opened_store(self.store_url) as store:
                return await act(store)

        return asyncio.run(main())

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is true."""
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def notes(self) -> list[str]:
        """What tasks wrote."""
        return self._notes.read_text().splitlines() if self._notes.exists() else []

    # --- Lambda

    def event(self, *, wait: float = 3.0) -> Document:
        """The event that Lambda makes of up to ten messages."""
        url = self._url("default__normal")
        body = {"QueueUrl": url, "MaxNumberOfMessages": 10, "MessageSystemAttributeNames": ["All"]}
        deadline = time.monotonic() + wait
        while not (messages := self._call("ReceiveMessage", body).get("Messages")) and time.monotonic() < deadline:
            time.sleep(0.05)
        return {"Records": [self._record(message) for message in messages or ()]}

    def work(self, event: Document | None = None, *, seconds: float = 60.0) -> set[str]:
        """Call the worker; returns the runs whose tickets come again. Lambda deletes the other messages."""
        event = self.event() if event is None else event
        answer = worker_handler(event, Context(seconds))
        again = {each["itemIdentifier"] for each in answer["batchItemFailures"]}
        returned = set()
        for record in event["Records"]:
            if record["messageId"] in again:
                returned.add(json.loads(record["body"])["run"])
            else:
                handle = {"QueueUrl": self._url("default__normal"), "ReceiptHandle": record["receiptHandle"]}
                self._call("DeleteMessage", handle)
        return returned

    def plan(self, *, seconds: float = 60.0) -> Document:
        """Call the planner."""
        return planner_handler(SCHEDULED, Context(seconds))

    def send(self, body: str) -> None:
        """Send a message that Horae did not write."""
        self._call("SendMessage", {"QueueUrl": self._url("default__normal"), "MessageBody": body})

    def messages(self, name: str = "default__normal") -> dict[str, int]:
        """How many messages an SQS queue has: visible, delayed, hidden."""
        names = ("", "Delayed", "NotVisible")
        attributes = [f"ApproximateNumberOfMessages{each}" for each in names]
        body = {"QueueUrl": self._url(name), "AttributeNames": attributes}
        found = self._call("GetQueueAttributes", body)["Attributes"]
        return {name or "Visible": int(found[f"ApproximateNumberOfMessages{name}"]) for name in names}

    def _record(self, message: Document) -> Document:
        return {
            "messageId": message["MessageId"],
            "receiptHandle": message["ReceiptHandle"],
            "body": message["Body"],
            "attributes": message.get("Attributes", {}),
            "messageAttributes": {},
            "md5OfBody": message["MD5OfBody"],
            "eventSource": "aws:sqs",
            "eventSourceARN": f"arn:aws:sqs:us-east-1:123456789012:{self.prefix}__default__normal",
            "awsRegion": "us-east-1",
        }

    def _url(self, name: str) -> str:
        found: str = self._call("GetQueueUrl", {"QueueName": f"{self.prefix}__{name}"})["QueueUrl"]
        return found

    def _call(self, verb: str, body: Document) -> Document:
        return aws_client.call(ministack_url(), "sqs", verb, body)


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    """An account whose functions have the settings of this process."""
    account = Account(f"sqlite:///{tmp_path / 'horae.db'}", own_name(), tmp_path / "notes")
    asyncio.run(make_store(account.store_url).migrate())
    settings = {
        "HORAE_STORE": account.store_url,
        "HORAE_QUEUE": account.queue_url,
        "HORAE_APPS": "tests.aws.tasks:app",
        "HORAE_HORIZON_SECONDS": "180",
        "HORAE_LOG_LEVEL": "warning",
        "NOTES": str(tmp_path / "notes"),
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    yield account
    Environment.close_all()
    aws_client.delete_queues(ministack_url(), account.prefix)
