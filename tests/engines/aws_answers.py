"""What DynamoDB and SQS answer when they throttle, leave something unprocessed, conflict or lag behind."""

import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

Document = dict[str, Any]

WRITES = {"PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "BatchExecuteStatement", "TransactWriteItems"}
SENDS = {"SendMessage", "SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"}
ADMINISTRATION = ("Create", "Describe", "Delete", "List", "Update", "Get", "Set", "Tag")


class Fault(Enum):
    """What may happen to a request."""

    THROTTLED = "request throttled"
    THROTTLED_STATEMENT = "statement throttled"
    CONFLICTING_STATEMENT = "statement in conflict with a transaction"
    UNPROCESSED_ITEMS = "unprocessed items"
    UNPROCESSED_KEYS = "unprocessed keys"
    CONFLICT = "transaction in conflict"
    STALE_INDEX = "stale index"
    FAILED_ENTRY = "entry of a batch failed"  # SQS
    DELIVERED_TWICE = "delivered twice"  # SQS
    CUT_BEFORE = "cut before"
    CUT_AFTER = "cut after"
    SLOW = "slow"
    ERROR = "error 500"
    ERROR_AFTER = "error 500 after it took effect"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the client gets."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.status == 200

    def with_document(self, document: Document) -> "Answer":
        """The same with another body."""
        return replace(self, body=json.dumps(document).encode())


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request: its service, verb and body, and what was left out of it."""

    service: str  # dynamodb or sqs
    verb: str
    body: bytes
    left_out: Sequence[Any] = ()

    @classmethod
    def of(cls, headers: Mapping[str, str], body: bytes) -> "Exchange":
        prefix, _, verb = headers.get("X-Amz-Target", "").partition(".")
        return cls("sqs" if prefix == "AmazonSQS" else "dynamodb", verb, body)

    @property
    def document(self) -> Document:
        found: Document = json.loads(self.body)
        return found


def applies(fault: Fault, exchange: Exchange) -> bool:
    """Whether a fault may hit such a request; requests that only set up tables and queues are spared."""
    verb = exchange.verb
    match fault:
        case Fault.THROTTLED_STATEMENT | Fault.CONFLICTING_STATEMENT:
            return verb == "BatchExecuteStatement" and _writes(exchange)
        case Fault.UNPROCESSED_ITEMS:
            return verb == "BatchWriteItem"
        case Fault.UNPROCESSED_KEYS:
            return verb == "BatchGetItem"
        case Fault.CONFLICT:
            return verb == "TransactWriteItems"
        case Fault.STALE_INDEX:
            return verb in ("Query", "Scan") and "IndexName" in exchange.document
        case Fault.FAILED_ENTRY:
            return verb in SENDS and verb.endswith("Batch")
        case Fault.DELIVERED_TWICE:
            return verb == "ReceiveMessage"
        case Fault.CUT_AFTER | Fault.ERROR_AFTER:
            return verb in WRITES | SENDS
        case Fault.THROTTLED | Fault.CUT_BEFORE | Fault.SLOW | Fault.ERROR:
            return bool(verb) and not _administers(verb)


def _administers(verb: str) -> bool:
    is_data = verb in WRITES | SENDS | {"GetItem", "DeleteMessage"}
    return verb.startswith(ADMINISTRATION) and not is_data


def _writes(exchange: Exchange) -> bool:
    statements = exchange.document["Statements"]
    return not any(each["Statement"].lstrip().upper().startswith("SELECT") for each in statements)


# --- before the request


def before(fault: Fault, exchange: Exchange) -> Answer | None:
    """The answer in place of the service's, which never sees the request; None when it does."""
    match fault:
        case Fault.THROTTLED if exchange.service == "sqs":
            return problem("com.amazonaws.sqs#RequestThrottled", "Rate exceeded.")
        case Fault.THROTTLED:
            return problem("com.amazon.coral.availability#ThrottlingException", "Rate of requests exceeds the limit.")
        case Fault.CONFLICT:
            return _conflict(len(exchange.document["TransactItems"]))
        case Fault.ERROR:
            return internal_error()
        case _:
            return None


def problem(kind: str, message: str, status: int = 400, **more: Any) -> Answer:
    """An error as the services write it."""
    headers = {"Content-Type": "application/x-amz-json-1.0", "x-amzn-RequestId": "FAULT"}
    return Answer(status, json.dumps({"__type": kind, "message": message, **more}).encode(), headers)


def internal_error() -> Answer:
    return problem("com.amazonaws.dynamodb.v20120810#InternalServerError", "The request processing has failed.", 500)


def _conflict(items: int) -> Answer:
    reasons: list[Document] = [{"Code": "None"} for _ in range(items)]
    reasons[-1] = {"Code": "TransactionConflict", "Message": "Transaction is ongoing for the item"}
    codes = ", ".join(reason["Code"] for reason in reasons)
    return problem(
        "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]",
        CancellationReasons=reasons,
    )


# --- parts that are left out


def split(fault: Fault | None, exchange: Exchange, rng: random.Random) -> Exchange:
    """What the service gets: without the parts that the fault hits, which are some or all of them."""
    if fault not in PARTIAL:
        return exchange
    body = exchange.document
    parts = _parts(fault, body)
    hit = sorted(rng.sample(range(len(parts)), rng.randint(1, len(parts))))
    kept = [part for place, part in enumerate(parts) if place not in hit]
    return replace(
        exchange,
        body=json.dumps(_with_parts(fault, body, kept)).encode() if kept else b"",
        left_out=[(place, parts[place]) for place in hit],
    )


def merged(fault: Fault, split: Exchange, answer: Answer) -> Answer:
    """The answer to the whole request: what was left out is reported as the service would."""
    body = json.loads(answer.body)
    match fault:
        case Fault.THROTTLED_STATEMENT | Fault.CONFLICTING_STATEMENT:
            code = "ThrottlingError" if fault is Fault.THROTTLED_STATEMENT else "TransactionConflict"
            for place, _ in split.left_out:
                body["Responses"].insert(place, {"Error": {"Code": code, "Message": fault.value}})
        case Fault.UNPROCESSED_ITEMS:
            left = body.setdefault("UnprocessedItems", {})
            for _, (table, item) in split.left_out:
                left.setdefault(table, []).append(item)
        case Fault.UNPROCESSED_KEYS:
            left = body.setdefault("UnprocessedKeys", {})
            for _, (table, (options, key)) in split.left_out:
                left.setdefault(table, {**options, "Keys": []})["Keys"].append(key)
        case _:
            failed = {"Code": "InternalError", "SenderFault": False, "Message": fault.value}
            body.setdefault("Failed", []).extend({"Id": entry["Id"], **failed} for _, entry in split.left_out)
    return answer.with_document(body)


NOTHING = {  # what a service answers to a request of which nothing is left
    Fault.THROTTLED_STATEMENT: {"Responses": []},
    Fault.CONFLICTING_STATEMENT: {"Responses": []},
    Fault.UNPROCESSED_ITEMS: {"UnprocessedItems": {}},
    Fault.UNPROCESSED_KEYS: {"Responses": {}, "UnprocessedKeys": {}},
    Fault.FAILED_ENTRY: {"Successful": [], "Failed": []},
}
PARTIAL = frozenset(NOTHING)


def nothing(fault: Fault) -> Answer:
    """The answer to a request of which nothing is left."""
    headers = {"Content-Type": "application/x-amz-json-1.0", "x-amzn-RequestId": "FAULT"}
    return Answer(200, json.dumps(NOTHING[fault]).encode(), headers)


def _parts(fault: Fault | None, body: Document) -> list[Any]:
    match fault:
        case Fault.UNPROCESSED_ITEMS:
            return [(table, item) for table, items in body["RequestItems"].items() for item in items]
        case Fault.UNPROCESSED_KEYS:
            return [
                (table, ({name: value for name, value in part.items() if name != "Keys"}, key))
                for table, part in body["RequestItems"].items()
                for key in part["Keys"]
            ]
        case Fault.FAILED_ENTRY:
            return list(body["Entries"])
        case _:
            return list(body["Statements"])


def _with_parts(fault: Fault | None, body: Document, parts: Sequence[Any]) -> Document:
    tables: Document = {}
    match fault:
        case Fault.UNPROCESSED_ITEMS:
            for table, item in parts:
                tables.setdefault(table, []).append(item)
            return {**body, "RequestItems": tables}
        case Fault.UNPROCESSED_KEYS:
            for table, (options, key) in parts:
                tables.setdefault(table, {**options, "Keys": []})["Keys"].append(key)
            return {**body, "RequestItems": tables}
        case Fault.FAILED_ENTRY:
            return {**body, "Entries": list(parts)}
        case _:
            return {**body, "Statements": list(parts)}


# --- what is not as it should be


class LaggingIndexes:
    """Indexes that lag behind: what is new in one appears later, and what it answered is answered again for a while."""

    def __init__(self, lag: float) -> None:
        self.lag = lag
        self._seen: dict[str, float] = {}  # an item of an index → when it was there first
        self._answers: dict[bytes, tuple[float, bytes]] = {}  # a query → the last true answer

    def watch(self, exchange: Exchange, answer: Answer) -> None:
        """Remember what an index really has."""
        now = time.monotonic()
        for item in json.loads(answer.body).get("Items", []):
            self._seen.setdefault(_name(exchange, item), now)
        if len(self._answers) > ANSWERS_KEPT:
            self._answers.clear()
        at, _ = self._answers.get(exchange.body, (0.0, b""))
        if now - at > self.lag:
            self._answers[exchange.body] = (now, answer.body)

    def stale(self, exchange: Exchange, answer: Answer) -> Answer:
        """The answer of an index that lags behind; the same answer where that makes no difference."""
        now = time.monotonic()
        at, earlier = self._answers.get(exchange.body, (0.0, answer.body))
        if now - at <= self.lag and earlier != answer.body:
            return replace(answer, body=earlier)
        body = json.loads(answer.body)
        items = body.get("Items", [])
        old = [item for item in items if now - self._seen.get(_name(exchange, item), now) > self.lag]
        if len(old) == len(items):
            return answer
        return answer.with_document({**body, "Items": old, "Count": len(old)})


ANSWERS_KEPT = 2000


def _name(exchange: Exchange, item: Document) -> str:
    body = exchange.document
    return f"{body['TableName']} {body['IndexName']} {json.dumps(item, sort_keys=True)}"


class Deliveries:
    """Messages that were delivered before, for a service that delivers them at least once."""

    def __init__(self) -> None:
        self._last: dict[str, list[Document]] = {}

    def watch(self, exchange: Exchange, answer: Answer) -> None:
        """Remember what was delivered from a queue."""
        if messages := json.loads(answer.body).get("Messages"):
            self._last[exchange.document["QueueUrl"]] = messages

    def again(self, exchange: Exchange, answer: Answer) -> Answer:
        """The answer with a message that was delivered before; the same answer when there was none."""
        body = json.loads(answer.body)
        here = {message["MessageId"] for message in body.get("Messages", [])}
        earlier = [m for m in self._last.get(exchange.document["QueueUrl"], []) if m["MessageId"] not in here]
        if not earlier or len(here) >= exchange.document.get("MaxNumberOfMessages", 1):
            return answer
        return answer.with_document({**body, "Messages": [*body.get("Messages", []), earlier[0]]})
