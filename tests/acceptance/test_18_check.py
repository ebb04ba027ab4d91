"""Issue 3, line 8: `horae check` passes on the histories of this suite and finds each planted violation.

Every cluster of this suite is checked when it ends (see `open_cluster`); here lies are planted in a history of its own.
"""

import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import pytest

from horae.stores.postgres.store import PostgresStore
from horae.stores.sqlite.executor import InlineExecutor
from horae.stores.sqlite.store import SqliteStore
from tests.acceptance.conftest import Tell
from tests.clocks import ManualClock
from tests.live import HORAE, environment
from tests.postgres_server import postgres_url, scratch_schema
from tests.proof.checking.planting import LIES, PostgresGround, SqliteGround, tell_story

pytestmark = pytest.mark.acceptance

AGO = timedelta(minutes=10)


def check(store: str) -> tuple[int, dict[str, Any]]:
    """`horae check -o json`: its exit code and what it prints."""
    done = subprocess.run(
        [HORAE, "check", "--store", store, "-o", "json"], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def assert_believed(store: str) -> None:
    code, report = check(store)
    assert (code, report["violations"]) == (0, [])
    assert report["runs"] > 100


def assert_found(store: str, expected: str, name: str) -> None:
    code, report = check(store)
    assert code == 1, name
    assert expected in {violation["code"] for violation in report["violations"]}, (name, report)


async def test_every_lie_is_found_on_sqlite(tmp_path: Path, tell: Tell) -> None:
    truth, copy = tmp_path / "truth.db", tmp_path / "copy.db"
    clock = ManualClock(datetime.now(UTC) - AGO)
    store = SqliteStore(truth, executor=InlineExecutor(), wall=clock.now)
    await store.open()
    story = await tell_story(store, clock)
    await store.close()
    assert_believed(f"sqlite:///{truth}")
    for lie in LIES:
        shutil.copy(truth, copy)
        executor = InlineExecutor()
        lied_to = SqliteStore(copy, executor=executor)
        await lied_to.open()
        await lie.plant(SqliteGround(executor), story)
        await lied_to.close()
        assert_found(f"sqlite:///{copy}", lie.code, lie.name)
    tell(f"{len(LIES)} planted violations found")


async def test_lies_are_found_on_postgres(tell: Tell) -> None:
    clock = ManualClock(datetime.now(UTC) - AGO)
    async with scratch_schema(postgres_url()) as url, connected(url) as (store, connection):
        story = await tell_story(store, clock)
        assert_believed(url)
        ground = PostgresGround(connection)
        await ground.remember()
        for lie in LIES[::2]:
            await lie.plant(ground, story)
            assert_found(url, lie.code, lie.name)
            await ground.restore()
        assert_believed(url)
    tell(f"{len(LIES[::2])} planted violations found")


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[tuple[PostgresStore, asyncpg.Connection]]:
    store = PostgresStore(url)
    await store.migrate()
    await store.open()
    connection = await asyncpg.connect(url)
    yield store, connection
    await connection.close()
    await store.close()
