"""Sends entries to SQS ten at a time, many batches at once, and those again that failed through no fault of theirs."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from horae.aws_api.client import ServiceClient
from horae.core.errors import Unavailable
from horae.core.values import Value

BATCH = 10  # entries that SQS takes in one request
ATTEMPTS = 5

Entry = Mapping[str, Any]


class FailedEntry(Value, frozen=True, kw_only=True):
    """An entry that SQS does not take, however often it is sent."""

    entry: Entry
    code: str
    message: str


async def send_batches(client: ServiceClient, action: str, url: str, entries: Sequence[Entry]) -> list[FailedEntry]:
    """Send entries to one SQS queue, and return those that it refuses; raises `Unavailable` when others are left."""
    batches = [entries[first : first + BATCH] for first in range(0, len(entries), BATCH)]
    answers = await asyncio.gather(*(_send(client, action, url, batch) for batch in batches), return_exceptions=True)
    refused: list[FailedEntry] = []
    for answer in answers:  # all are over: none is left running behind an error
        if isinstance(answer, BaseException):
            raise answer
        refused += answer
    return refused


async def _send(client: ServiceClient, action: str, url: str, batch: Sequence[Entry]) -> list[FailedEntry]:
    refused: list[FailedEntry] = []
    left: Sequence[Entry] = [{**entry, "Id": str(number)} for number, entry in enumerate(batch)]
    for attempt in range(1, ATTEMPTS + 1):
        answer = await client.call(action, {"QueueUrl": url, "Entries": left})
        failed = {each["Id"]: each for each in answer.get("Failed") or ()}
        refused += [_refused(entry, failed[entry["Id"]]) for entry in left if _is_final(failed.get(entry["Id"]))]
        left = [entry for entry in left if entry["Id"] in failed and not _is_final(failed[entry["Id"]])]
        if not left:
            return refused
        await asyncio.sleep(client.budget.pause(attempt))
    raise Unavailable(f"sqs: {action} left {len(left)} of {len(batch)} entries undone")


def _is_final(failure: Mapping[str, Any] | None) -> bool:
    return failure is not None and bool(failure.get("SenderFault")) and "hrottl" not in str(failure.get("Code"))


def _refused(entry: Entry, failure: Mapping[str, Any]) -> FailedEntry:
    return FailedEntry(entry=entry, code=str(failure.get("Code", "")), message=str(failure.get("Message", "")))
