"""The upgrade to one table of small records keeps what was in the tables before it."""

from contextlib import closing
from datetime import date, timedelta
from pathlib import Path

from horae.core.changes import Change
from horae.core.model import JobId
from horae.core.records import Declaration, IdempotencyRecord, KeyHolder, TaskSchema
from horae.core.values import replace
from horae.ports.store import Store
from horae.stores.common.statements import migrations
from horae.stores.postgres.connection.database import Address
from horae.stores.postgres.store import PostgresStore
from horae.stores.sqlite.codecs import to_micros
from horae.stores.sqlite.database import STATEMENTS, Database
from horae.stores.sqlite.store import SqliteStore
from tests import acts
from tests.conformance.builders import MINUTE, NOW, new_id
from tests.postgres_server import postgres_url, scratch_schema

TEXT = 'ä "quoted" \\back\\ [1,2] \n\t\x01\x1f\x7f \u2028 😀 /'  # in JSON much of it is written in several ways
HOLDER = KeyHolder(owner=TEXT, key=TEXT, job_id=JobId(new_id()))
REQUEST = IdempotencyRecord(owner=TEXT, key=TEXT, fingerprint="f", answer=TEXT, created_at=NOW)
DECLARED = Declaration(owner=TEXT, app=TEXT, key=f"{TEXT}k", digest="d", seen_at=NOW)
TASK = TaskSchema(name=TEXT, schema=TEXT)


async def assert_all_is_there(store: Store) -> None:
    assert await store.records(KeyHolder, owner=TEXT, key=TEXT) == [HOLDER]
    assert await store.records(IdempotencyRecord, owner=TEXT, key=TEXT) == [REQUEST]
    assert await store.records(Declaration, owner=TEXT) == [DECLARED]
    assert await store.records(TaskSchema) == [TASK]

    # What was moved is found under the keys that the code writes.
    again = replace(DECLARED, seen_at=NOW + MINUTE)
    await acts.declare(store, TEXT, [again])
    assert await store.records(Declaration, owner=TEXT) == [again]
    await store.apply([Change(deletes=(replace(HOLDER, job_id=JobId(new_id())),))])
    assert await store.records(KeyHolder, owner=TEXT, key=TEXT) == [HOLDER], "another job's key stays"
    await store.apply([Change(deletes=(HOLDER, DECLARED))])
    assert await store.records(KeyHolder, owner=TEXT) == []
    assert await store.records(Declaration, owner=TEXT) == []
    assert await store.prune(before=date.min, now=NOW + timedelta(days=2), limit=10) == 1
    assert await store.records(IdempotencyRecord, owner=TEXT) == []


async def test_a_sqlite_file_of_the_version_before_keeps_its_records(tmp_path: Path) -> None:
    database = Database(tmp_path / "horae.db")
    database.prepare()
    with closing(database.writer()) as db:
        db.execute(STATEMENTS["create_versions"])
        for number, script in migrations("sqlite"):
            if number < 5:
                db.executescript(script)
                db.execute(STATEMENTS["add_version"], (number, 0))
        at = to_micros(NOW)
        db.execute("INSERT INTO keys VALUES (?, ?, ?)", (TEXT, TEXT, bytes.fromhex(HOLDER.job_id)))
        db.execute("INSERT INTO receipts VALUES (?, ?, 'f', ?, ?)", (TEXT, TEXT, TEXT, at))
        db.execute("INSERT INTO declarations VALUES (?, ?, ?, 'd', ?)", (TEXT, TEXT, DECLARED.key, at))
        db.execute("INSERT INTO tasks VALUES (?, ?)", (TEXT, TEXT))
    store = SqliteStore(tmp_path / "horae.db")
    assert 5 in await store.migrate()
    await store.open()
    try:
        await assert_all_is_there(store)
    finally:
        await store.close()


async def test_a_postgres_schema_of_the_version_before_keeps_its_records() -> None:
    async with scratch_schema(postgres_url()) as url:
        await given_version_10(url)
        store = PostgresStore(url)
        assert 11 in await store.migrate()
        await store.open()
        try:
            await assert_all_is_there(store)
        finally:
            await store.close()


TABLES_OF_VERSION_10 = """
CREATE TABLE keys (owner text COLLATE "C", key text COLLATE "C", job_id uuid NOT NULL, PRIMARY KEY (owner, key));
CREATE TABLE receipts (owner text COLLATE "C", key text COLLATE "C", fingerprint text NOT NULL, answer text NOT NULL,
                       created_at timestamptz NOT NULL, PRIMARY KEY (owner, key));
CREATE TABLE declarations (owner text COLLATE "C", app text COLLATE "C", key text COLLATE "C", digest text COLLATE "C",
                           seen_at timestamptz NOT NULL, PRIMARY KEY (owner, app, key, digest));
CREATE TABLE tasks (name text COLLATE "C" PRIMARY KEY, schema text NOT NULL);
"""


async def given_version_10(url: str) -> None:
    connection = await Address(url).connect()
    schema = url.split("search_path=")[1]
    await connection.execute(f'CREATE SCHEMA "{schema}"')
    await connection.execute("CREATE TABLE schema_versions (version integer PRIMARY KEY, applied_at timestamptz)")
    for number, script in migrations("postgres"):
        if number < 11:
            async with connection.transaction():
                await connection.execute(script)
                await connection.execute("INSERT INTO schema_versions (version) VALUES ($1)", number)
    await connection.execute(TABLES_OF_VERSION_10)
    await connection.execute("INSERT INTO keys VALUES ($1, $1, $2)", TEXT, HOLDER.job_id)
    await connection.execute("INSERT INTO receipts VALUES ($1, $1, 'f', $1, $2)", TEXT, NOW)
    await connection.execute("INSERT INTO declarations VALUES ($1, $1, $2, 'd', $3)", TEXT, DECLARED.key, NOW)
    await connection.execute("INSERT INTO tasks VALUES ($1, $1)", TEXT)
    await connection.close()
