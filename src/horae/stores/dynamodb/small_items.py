"""Codecs between small values and their items: records, nodes, skips, backfills and stop requests."""

from datetime import timedelta
from hashlib import sha256
from typing import Any

import msgspec

from horae.core.model import Backfill, JobId, Node, NodeId, Reason, Skip, Trigger
from horae.stores.common.codecs import decode_tasks, encode_tasks
from horae.stores.common.records import KINDS, Stored, decode_record, encode_record
from horae.stores.dynamodb.items import Item, expiry, moment, spread, stamp, text, time_of

NODES = "nodes"
RECORD_PARTS = 16  # sub-shards of what an owner may have very many of
LONGEST_KEY = 1_024  # bytes of a sort key
_SPREAD = frozenset({"idempotency", "key"})
_MICROSECOND = timedelta(microseconds=1)

# --- records ----------------------------------------------------------------------------------------------------------


def record_key(kind: str, owner: str, key: str) -> Item:
    """The key of a record, by the name of its kind in `common.records.KINDS`."""
    return {
        "pk": text(_record_partition(kind, owner, spread(key, record_parts(kind)))),
        "sk": text(_record_sort_key(key)),
    }


def _record_sort_key(key: str) -> str:
    """The sort key of a record: never empty, and no longer than DynamoDB allows."""
    whole = f"={key}"
    data = whole.encode()
    return whole if len(data) <= LONGEST_KEY else f"#{sha256(data).hexdigest()}"


def record_parts(kind: str) -> int:
    """In how many partitions the records of an owner are."""
    return RECORD_PARTS if kind in _SPREAD else 1


def record_partitions(kind: str, owner: str) -> list[str]:
    """The partitions of the records of an owner."""
    return [_record_partition(kind, owner, part) for part in range(record_parts(kind))]


def _record_partition(kind: str, owner: str, part: int) -> str:
    return f"rec#{kind}#{owner}#{part:02d}"


def record_item(record: Stored, life: timedelta | None = None) -> Item:
    """The item of a record; one with a life is deleted by TTL some time after it."""
    row = encode_record(record)
    item = {**record_key(row.kind, row.owner, row.key), "v": text(row.value), "o": text(row.owner)}
    if item["sk"]["S"].startswith("#"):
        item["k"] = text(row.key)
    if row.at is not None:
        item["at"] = moment(row.at)
        if life is not None:
            item["ttl"] = expiry(row.at + life)
    return item


def record_of(kind: type[Any], item: Item) -> Any:
    """The inverse of `record_item`."""
    at = time_of(item["at"]) if "at" in item else None
    key = item["k"]["S"] if "k" in item else item["sk"]["S"][1:]
    return decode_record(KINDS[kind], item["o"]["S"], key, item["v"]["S"], at)


# --- nodes ------------------------------------------------------------------------------------------------------------


class _NodeRow(msgspec.Struct, array_like=True, frozen=True):
    """What a node says of itself when it registers."""

    name: str
    roles: tuple[str, ...]
    version: str
    queues: tuple[str, ...]
    concurrency: int


def node_key(node: NodeId) -> Item:
    """The key of a node."""
    return {"pk": text(NODES), "sk": text(node)}


def node_item(node: Node) -> Item:
    """The item of a node; its heartbeat changes `b`, `u` and `wa`."""
    row = _NodeRow(node.name, node.roles, node.version, node.queues, node.concurrency)
    return {
        **node_key(node.id),
        "v": text(msgspec.json.encode(row).decode()),
        "tasks": text(encode_tasks(node.tasks)),
        "c": moment(node.started_at),
        **beat_attributes(node),
    }


def beat_attributes(node: Node) -> Item:
    """What each heartbeat writes."""
    return {
        "b": moment(node.beat_at),
        "u": {"N": str(node.running)},
        "wa": {"N": str(node.wall_ahead // _MICROSECOND)},
    }


def node_of(item: Item) -> Node:
    """The inverse of `node_item`."""
    row = msgspec.json.decode(item["v"]["S"], type=_NodeRow)
    return Node(
        id=NodeId(item["sk"]["S"]),
        name=row.name,
        roles=row.roles,
        version=row.version,
        queues=row.queues,
        concurrency=row.concurrency,
        started_at=time_of(item["c"]),
        beat_at=time_of(item["b"]),
        running=int(item["u"]["N"]),
        tasks=decode_tasks(item["tasks"]["S"]),
        wall_ahead=int(item["wa"]["N"]) * _MICROSECOND,
    )


# --- skips and backfills ----------------------------------------------------------------------------------------------


def skip_key(skip: Skip) -> Item:
    """The key of a range of skipped slots, beside its job."""
    return {"job": text(skip.job_id), "sk": text(f"skip#{stamp(skip.start)}#{skip.revision:010d}#{stamp(skip.end)}")}


def skip_item(skip: Skip) -> Item:
    """The item of a range of skipped slots."""
    return {
        **skip_key(skip),
        "r": {"N": str(skip.revision)},
        "from": moment(skip.start),
        "to": moment(skip.end),
        "n": {"N": str(skip.count)},
        "rs": text(skip.reason.value),
        "old": text("skip"),
        "old_at": text(stamp(skip.end) + skip.job_id),
    }


def skip_of(item: Item) -> Skip:
    """The inverse of `skip_item`."""
    return Skip(
        job_id=JobId(item["job"]["S"]),
        revision=int(item["r"]["N"]),
        start=time_of(item["from"]),
        end=time_of(item["to"]),
        count=int(item["n"]["N"]),
        reason=Reason(item["rs"]["S"]),
    )


def backfill_key(backfill: Backfill) -> Item:
    """The key of a backfill, beside its job."""
    return {"job": text(backfill.job_id), "sk": text(f"fill#{backfill.id}")}


def backfill_item(backfill: Backfill) -> Item:
    """The item of a backfill."""
    return {
        **backfill_key(backfill),
        "tg": text(backfill.trigger.value),
        "from": moment(backfill.start),
        "to": moment(backfill.end),
        "pa": moment(backfill.plan_at),
        "c": moment(backfill.created_at),
    }


def backfill_of(item: Item) -> Backfill:
    """The inverse of `backfill_item`."""
    return Backfill(
        id=item["sk"]["S"].removeprefix("fill#"),
        job_id=JobId(item["job"]["S"]),
        trigger=Trigger(item["tg"]["S"]),
        start=time_of(item["from"]),
        end=time_of(item["to"]),
        plan_at=time_of(item["pa"]),
        created_at=time_of(item["c"]),
    )
