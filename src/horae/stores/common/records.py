"""The codec of small records: each is a row of the table `records`, whatever its kind."""

from datetime import datetime
from typing import Any, NamedTuple, assert_never

import msgspec

from horae.core.model import JobId, Run
from horae.core.records import Declaration, IdempotencyRecord, KeyHolder, PastSchedule, ScheduleTrail, TaskSchema
from horae.stores.common.codecs import decode_schedule, encode_schedule

# Queue settings are a table of their own, which claims join.
Stored = IdempotencyRecord | KeyHolder | Declaration | ScheduleTrail | TaskSchema

KINDS: dict[type[Any], str] = {
    IdempotencyRecord: "idempotency",
    KeyHolder: "key",
    Declaration: "declaration",
    ScheduleTrail: "trail",
    TaskSchema: "task",
}


class RecordRow(NamedTuple):
    """The columns of `records`; the first three are its primary key."""

    kind: str
    owner: str
    key: str
    value: str
    at: datetime | None


def encode_record(record: Stored) -> RecordRow:
    """The row of a record; texts that make up a key or a value are a JSON array, so that no two are confused."""
    kind = KINDS[type(record)]
    match record:
        case IdempotencyRecord():
            answer = _join(record.fingerprint, record.answer)
            return RecordRow(kind, record.owner, record.key, answer, record.created_at)
        case KeyHolder():
            return RecordRow(kind, record.owner, record.key, record.job_id, None)
        case Declaration():
            return RecordRow(kind, record.owner, _join(record.app, record.key, record.digest), "", record.seen_at)
        case ScheduleTrail():
            return RecordRow(kind, record.owner, record.job_id, _encode_trail(record), record.changed_at)
        case TaskSchema():
            return RecordRow(kind, "", record.name, record.schema, None)
        case _:
            assert_never(record)


def decode_record(kind: str, owner: str, key: str, value: str, at: Any) -> Any:
    """The inverse of `encode_record`."""
    match kind:
        case "idempotency":
            fingerprint, answer = _split(value)
            return IdempotencyRecord(owner=owner, key=key, fingerprint=fingerprint, answer=answer, created_at=at)
        case "key":
            return KeyHolder(owner=owner, key=key, job_id=JobId(value))
        case "declaration":
            app, declared, digest = _split(key)
            return Declaration(owner=owner, app=app, key=declared, digest=digest, seen_at=at)
        case "trail":
            return _decode_trail(owner, JobId(key), value, at)
        case _:
            return TaskSchema(name=key, schema=value)


def key_row(run: Run) -> RecordRow:
    """The row that says that the job of a one-shot run holds its key."""
    assert run.spec.key is not None
    return encode_record(KeyHolder(owner=run.owner, key=run.spec.key, job_id=run.job_id))


class _PastRow(msgspec.Struct, array_like=True, frozen=True):
    """A past schedule as it is stored."""

    schedule: str
    revision: int
    since: datetime
    until: datetime


class _TrailRow(msgspec.Struct, array_like=True, frozen=True):
    """A schedule trail as it is stored, beside its key and time."""

    revision: int
    since: datetime
    since_revision: int
    past: list[_PastRow]


def _encode_trail(trail: ScheduleTrail) -> str:
    past = [_PastRow(encode_schedule(each.schedule), each.revision, each.since, each.until) for each in trail.past]
    return msgspec.json.encode(_TrailRow(trail.revision, trail.since, trail.since_revision, past)).decode()


def _decode_trail(owner: str, job_id: JobId, value: str, at: datetime) -> ScheduleTrail:
    row = msgspec.json.decode(value, type=_TrailRow)
    return ScheduleTrail(
        owner=owner,
        job_id=job_id,
        revision=row.revision,
        changed_at=at,
        since=row.since,
        since_revision=row.since_revision,
        past=tuple(
            PastSchedule(
                schedule=decode_schedule(each.schedule), revision=each.revision, since=each.since, until=each.until
            )
            for each in row.past
        ),
    )


def _join(*texts: str) -> str:
    return msgspec.json.encode(texts).decode()


def _split(text: str) -> list[str]:
    return msgspec.json.decode(text, type=list[str])
