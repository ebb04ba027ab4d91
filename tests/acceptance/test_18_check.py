"""Issue 3, line 8: `horae check` passes on the histories of this suite and finds each planted violation.

Every cluster of this suite is checked when it ends (see `open_cluster`); here violations are planted in a sample.
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
from tests.acceptance.conftest import ReportFigure
from tests.clocks import ManualClock
from tests.live import HORAE, environment
from tests.postgres_server import postgres_url, scratch_schema
from tests.proof.checking.store_mutants import STORE_MUTANTS, PostgresTables, SqliteTables, create_sample_history

pytestmark = pytest.mark.acceptance

AGO = timedelta(minutes=10)


def check(store: str) -> tuple[int, dict[str, Any]]:
    """Run `horae check -o json`; return its exit code and output."""
    done = subprocess.run(
        [HORAE, "check", "--store", store, "-o", "json"], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def assert_clean(store: str) -> None:
    code, report = check(store)
    assert (code, report["violations"]) == (0, [])
    assert report["runs"] > 100


def assert_found(store: str, expected: str, name: str) -> None:
    code, report = check(store)
    assert code == 1, name
    assert expected in {violation["code"] for violation in report["violations"]}, (name, report)


async def test_every_planted_violation_is_found_on_sqlite(tmp_path: Path, report_figure: ReportFigure) -> None:
    original, copy = tmp_path / "original.db", tmp_path / "copy.db"
    clock = ManualClock(datetime.now(UTC) - AGO)
    store = SqliteStore(original, executor=InlineExecutor(), wall=clock.now)
    await store.open()
    sample = await create_sample_history(store, clock)
    await store.close()
    assert_clean(f"sqlite:///{original}")
    for mutant in STORE_MUTANTS:
        shutil.copy(original, copy)
        executor = InlineExecutor()
        lied_to = SqliteStore(copy, executor=executor)
        await lied_to.open()
        await mutant.plant(SqliteTables(executor), sample)
        await lied_to.close()
        assert_found(f"sqlite:///{copy}", mutant.code, mutant.name)
    report_figure(f"{len(STORE_MUTANTS)} planted violations found")


async def test_planted_violations_are_found_on_postgres(report_figure: ReportFigure) -> None:
    clock = ManualClock(datetime.now(UTC) - AGO)
    async with scratch_schema(postgres_url()) as url, connected(url) as (store, connection):
        sample = await create_sample_history(store, clock)
        assert_clean(url)
        tables = PostgresTables(connection)
        await tables.remember()
        for mutant in STORE_MUTANTS[::2]:
            await mutant.plant(tables, sample)
            assert_found(url, mutant.code, mutant.name)
            await tables.restore()
        assert_clean(url)
    report_figure(f"{len(STORE_MUTANTS[::2])} planted violations found")


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[tuple[PostgresStore, asyncpg.Connection]]:
    store = PostgresStore(url)
    await store.migrate()
    await store.open()
    connection = await asyncpg.connect(url)
    yield store, connection
    await connection.close()
    await store.close()
