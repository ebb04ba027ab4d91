"""Codecs between domain values and the items of DynamoDB; what is at its default is absent, so items stay small."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zlib import crc32

import msgspec

from horae.core.model import (
    Attempt,
    Job,
    JobId,
    JobStatus,
    NodeId,
    Outcome,
    Policy,
    Reason,
    Run,
    RunId,
    Spec,
    State,
    Trigger,
)
from horae.stores.common.codecs import (
    STATES,
    TRIGGERS,
    decode_error,
    decode_labels,
    decode_policy,
    decode_schedule,
    encode_error,
    encode_labels,
    encode_policy,
    encode_schedule,
)

Item = dict[str, Any]  # attribute → value with its type, as DynamoDB shows it

_FIRST = datetime.min.replace(tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_UNIX = datetime(1970, 1, 1, tzinfo=UTC)
NULL: Item = {"NULL": True}
LATEST = "9" * 20  # sorts after every time

# --- values -----------------------------------------------------------------------------------------------------------


def text(value: str) -> Item:
    """A text."""
    return {"S": value}


def number(value: float) -> Item:
    """A number."""
    return {"N": repr(value)}


def binary(data: bytes) -> Item:
    """Bytes, which JSON carries in base 64."""
    return {"B": msgspec.to_builtins(data)}


def bytes_of(value: Item) -> bytes:
    """The inverse of `binary`."""
    return msgspec.convert(value["B"], bytes)


def micros(moment: datetime) -> int:
    """A time in microseconds since the year 1."""
    return (moment - _FIRST) // _MICROSECOND


def time_of(value: Item) -> datetime:
    """The time of a number of `micros`."""
    return _FIRST + int(value["N"]) * _MICROSECOND


def time_of_micros(value: int) -> datetime:
    """The inverse of `micros`."""
    return _FIRST + value * _MICROSECOND


def moment(value: datetime) -> Item:
    """A time."""
    return {"N": str((value - _FIRST) // _MICROSECOND)}


def stamp(value: datetime) -> str:
    """A time as a text that sorts like it."""
    return f"{(value - _FIRST) // _MICROSECOND:020d}"


def time_of_stamp(value: str) -> datetime:
    """The inverse of `stamp`; what follows the time is ignored."""
    return _FIRST + int(value[:20]) * _MICROSECOND


def expiry(value: datetime) -> Item:
    """A time as TTL wants it: in seconds since 1970."""
    return {"N": str((value - _UNIX) // timedelta(seconds=1))}


def packed(ids: Iterable[str]) -> Item:
    """Ids as 16 bytes each."""
    return binary(bytes.fromhex("".join(ids)))


def unpacked(value: Item) -> list[str]:
    """The inverse of `packed`."""
    digits = bytes_of(value).hex()
    return [digits[start : start + 32] for start in range(0, len(digits), 32)]


def spread(key: str, parts: int) -> int:
    """One of several sub-shards, the same for a key on every machine."""
    return crc32(key.encode()) % parts


def _maybe(value: Item | None) -> datetime | None:
    return None if value is None or "NULL" in value else time_of(value)


def text_of(item: Mapping[str, Item], name: str) -> str | None:
    """A text of an item, if it has that."""
    value = item.get(name)
    return None if value is None else value.get("S")


# --- runs -------------------------------------------------------------------------------------------------------------

_NO_POLICY = encode_policy(Policy())


def spec_item(spec: Spec) -> Item:
    """The attributes of a spec, of jobs and of runs."""
    item: Item = {"t": {"S": spec.task}, "q": {"S": spec.queue}}
    if spec.params != "{}":
        item["p"] = {"S": spec.params}
    if spec.priority:
        item["pr"] = {"N": str(spec.priority)}
    if (policy := encode_policy(spec.policy)) != _NO_POLICY:
        item["pol"] = {"S": policy}
    if spec.labels:
        item["l"] = {"S": encode_labels(spec.labels)}
    others = ("pb", spec.params_blob), ("n", spec.name), ("k", spec.key), ("ok", spec.ordering_key)
    for name, value in (*others, ("sec", spec.secrets)):
        if value is not None:
            item[name] = {"S": value}
    return item


def spec_of(item: Item) -> Spec:
    """The inverse of `spec_item`."""
    params = item.get("p")
    return Spec(
        item["t"]["S"],
        "{}" if params is None else params["S"],
        text_of(item, "pb"),
        text_of(item, "n"),
        text_of(item, "k"),
        decode_labels(text_of(item, "l")),
        item["q"]["S"],
        int(item["pr"]["N"]) if "pr" in item else 0,
        text_of(item, "ok"),
        decode_policy(item["pol"]["S"]) if "pol" in item else _PLAIN,
        text_of(item, "sec"),
    )


_PLAIN = Policy()


def due_key(run: Run) -> str:
    """The place of a run in lists: its due time and id."""
    return stamp(run.due_at) + run.id


def run_item(run: Run, sub_shard: int) -> Item:
    """The item of a run, with the sub-shard of its owner that it is listed in."""
    item: Item = {
        "id": {"S": run.id},
        "os": {"S": f"{run.owner}#{sub_shard}"},
        "due": {"S": due_key(run)},
        "o": {"S": run.owner},
        **spec_item(run.spec),
        "d": moment(run.due_at),
        "c": moment(run.created_at),
        "r": {"N": str(run.revision)},
        **living(run),
    }
    if str(run.job_id) != run.id:
        item["job"] = {"S": run.job_id}
    if run.created_by != run.owner:
        item["by"] = {"S": run.created_by}
    if run.schedule is not None:
        item["sch"] = {"S": encode_schedule(run.schedule)}
    if run.trigger is not Trigger.SCHEDULE:
        item["tg"] = {"S": run.trigger.value}
    if run.slot is not None:
        item["sl"] = moment(run.slot)
        if run.slot != run.due_at and "job" in item:
            item["slot_key"] = {"S": stamp(run.slot) + run.id}
    if run.gate is not None:
        item["g"] = {"S": run.gate}
    if run.paused:
        item["pz"] = {"BOOL": True}
    if run.requeue_of is not None:
        item["rq"] = {"S": run.requeue_of}
    if run.resolution is not None:
        item["rsl"] = {"S": run.resolution}
    return {name: value for name, value in item.items() if value is not NULL}


def living(run: Run) -> Item:
    """The attributes of a run that its life changes; NULL for what it has not, because PartiQL sets all in one go."""
    return {
        "s": {"S": run.state.value},
        "w": moment(run.wake_at),
        "f": {"N": str(run.fence)},
        "nd": NULL if run.node is None else {"S": run.node},
        "a": {"N": str(run.attempt)} if run.attempt else NULL,
        "cr": {"N": str(run.crashes)} if run.crashes else NULL,
        "pg": NULL if run.progress is None else {"N": repr(run.progress)},
        "e": NULL if run.error is None else {"S": encode_error(run.error)},
        "res": NULL if run.result is None else {"S": run.result},
        "rs": NULL if run.reason is None else {"S": run.reason.value},
        "fs": NULL if run.first_started_at is None else moment(run.first_started_at),
        "ss": NULL if run.started_at is None else moment(run.started_at),
        "fi": NULL if run.finished_at is None else moment(run.finished_at),
        "st": NULL if run.stop is None else {"S": run.stop.value},
    }


def _count(item: Item, name: str) -> int:
    value = item.get(name)
    return 0 if value is None or "NULL" in value else int(value["N"])


def run_of(item: Item) -> Run:
    """The inverse of `run_item`."""
    ident = RunId(item["id"]["S"])
    owner = item["o"]["S"]
    schedule, stop, node = text_of(item, "sch"), text_of(item, "st"), text_of(item, "nd")
    reason, requeue_of = text_of(item, "rs"), text_of(item, "rq")
    progress = item.get("pg", NULL).get("N")
    return Run(
        ident,
        JobId(text_of(item, "job") or ident),
        owner,
        text_of(item, "by") or owner,
        spec_of(item),
        time_of(item["d"]),
        time_of(item["w"]),
        time_of(item["c"]),
        None if schedule is None else decode_schedule(schedule),
        TRIGGERS[item["tg"]["S"]] if "tg" in item else Trigger.SCHEDULE,
        _maybe(item.get("sl")),
        text_of(item, "g"),
        STATES[item["s"]["S"]],
        "pz" in item,
        None if stop is None else Reason(stop),
        None if node is None else NodeId(node),
        _count(item, "f"),
        _count(item, "a"),
        _count(item, "cr"),
        int(item["r"]["N"]),
        None if progress is None else float(progress),
        decode_error(text_of(item, "e")),
        text_of(item, "res"),
        None if reason is None else Reason(reason),
        _maybe(item.get("fs")),
        _maybe(item.get("ss")),
        _maybe(item.get("fi")),
        text_of(item, "rsl"),
        None if requeue_of is None else RunId(requeue_of),
    )


def is_parked(item: Item) -> bool:
    """Whether a run is kept from claims until the run before it leaves their gate."""
    return "NULL" not in item.get("pk", NULL)


def state_of(item: Item) -> State:
    """The state of the run of an item."""
    return STATES[item["s"]["S"]]


# --- attempts ---------------------------------------------------------------------------------------------------------


class _Try(msgspec.Struct, array_like=True, frozen=True):
    """An attempt that did not succeed, as it is stored with its run."""

    number: int
    fence: int
    node: str | None
    started_at: datetime | None
    ended_at: datetime
    outcome: str
    error: str | None


def attempt_item(attempt: Attempt) -> Item:
    """The item of an attempt in `meta`."""
    data = msgspec.json.encode(
        _Try(
            attempt.number,
            attempt.fence,
            attempt.node,
            attempt.started_at,
            attempt.ended_at,
            attempt.outcome.value,
            encode_error(attempt.error),
        )
    )
    return {"pk": text(f"tries#{attempt.run_id}"), "sk": text(f"{attempt.fence:010d}"), "v": text(data.decode())}


def attempt_of(item: Item) -> Attempt:
    """The inverse of `attempt_item`."""
    row = msgspec.json.decode(item["v"]["S"], type=_Try)
    return Attempt(
        run_id=RunId(item["pk"]["S"].removeprefix("tries#")),
        number=row.number,
        fence=row.fence,
        node=None if row.node is None else NodeId(row.node),
        started_at=row.started_at,
        ended_at=row.ended_at,
        outcome=Outcome(row.outcome),
        error=decode_error(row.error),
    )


# --- jobs -------------------------------------------------------------------------------------------------------------


def job_item(job: Job, sub_shard: int, live: Sequence[str] = ()) -> Item:
    """The item of a recurring job, with the runs of it that may not have ended."""
    item: Item = {
        "job": {"S": job.id},
        "sk": {"S": "job"},
        "os": {"S": f"{job.owner}#{sub_shard}"},
        "o": {"S": job.owner},
        **spec_item(job.spec),
        "sch": {"S": encode_schedule(job.schedule)},
        "s": {"S": job.status.value},
        "r": {"N": str(job.revision)},
        "c": moment(job.created_at),
        "u": moment(job.updated_at),
        "nf": NULL if job.next_fire_at is None else moment(job.next_fire_at),
        "pa": NULL if job.plan_at is None else moment(job.plan_at),
        "live": packed(live),
    }
    if job.created_by != job.owner:
        item["by"] = {"S": job.created_by}
    return item


def job_of_item(item: Item) -> Job:
    """The inverse of `job_item`, without the runs."""
    owner = item["o"]["S"]
    return Job(
        id=JobId(item["job"]["S"]),
        owner=owner,
        created_by=text_of(item, "by") or owner,
        spec=spec_of(item),
        schedule=decode_schedule(item["sch"]["S"]),
        status=JobStatus(item["s"]["S"]),
        next_fire_at=_maybe(item.get("nf")),
        plan_at=_maybe(item.get("pa")),
        revision=int(item["r"]["N"]),
        created_at=time_of(item["c"]),
        updated_at=time_of(item["u"]),
    )


def live_of(item: Item) -> list[str]:
    """The runs of a job that may not have ended."""
    return unpacked(item["live"]) if "live" in item else []
