"""The codec of small records: each is a row of the table `records`, whatever its kind."""

from datetime import datetime
from typing import Any, NamedTuple, assert_never

import msgspec

from horae.core.model import JobId, Run
from horae.core.records import Declaration, IdempotencyRecord, KeyHolder, TaskSchema

Stored = IdempotencyRecord | KeyHolder | Declaration | TaskSchema  # queue settings are a table, which claims join

KINDS: dict[type[Any], str] = {
    IdempotencyRecord: "idempotency",
    KeyHolder: "key",
    Declaration: "declaration",
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
        case _:
            return TaskSchema(name=key, schema=value)


def key_row(run: Run) -> RecordRow:
    """The row that says that the job of a one-shot run holds its key."""
    assert run.spec.key is not None
    return encode_record(KeyHolder(owner=run.owner, key=run.spec.key, job_id=run.job_id))


def _join(*texts: str) -> str:
    return msgspec.json.encode(texts).decode()


def _split(text: str) -> list[str]:
    return msgspec.json.decode(text, type=list[str])
