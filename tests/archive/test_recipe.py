"""The queries of `docs/guides/archive.md`, as they are printed there, on an archive."""

from datetime import datetime
from pathlib import Path

import duckdb
import pytest

from horae.blobs.folder import FolderFiles
from horae.core.model import Run
from tests.archive.places import archive_all, archiver_over, given_history, sqlite
from tests.docs.pages import ROOT, blocks_of

QUERIES = [block.text for block in blocks_of(ROOT / "docs/guides/archive.md") if block.language == "sql"]
COUNT = 200


@pytest.fixture
async def runs(tmp_path: Path) -> list[Run]:
    """Runs that are archived in the folder `archive`."""
    async with sqlite(tmp_path) as store:
        made = await given_history(store, COUNT)
        await archive_all(lambda: archiver_over(store, FolderFiles(tmp_path / "archive")))
    return made


def test_duckdb_answers_the_questions_of_the_guide(
    runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    view, by_task, by_error, by_params = QUERIES
    with duckdb.connect() as database:
        database.execute(view)
        assert database.execute(by_task).fetchall() == [
            ("reports.build", "succeeded", 180, 1000.0, 4.0),
            ("reports.build", "failed", 20, 1000.0, 4.0),
        ]
        [(error, count, example)] = database.execute(by_error).fetchall()
        assert (error, count) == ("ValueError", 20)
        assert example in {f"run_{run.id}" for run in runs}
        assert database.execute(by_params).fetchall() == [(f"run_{runs[4].id}", _utc(runs[4]), "2026-03-01", "a")]
        found = database.execute("SELECT count(*), count(DISTINCT id), min(finished_at) FROM runs").fetchone()
        assert found == (COUNT, COUNT, _utc(runs[0]))
        assert database.execute("SELECT count(*) FROM runs WHERE month = 4").fetchone() == (0,)


def _utc(run: Run) -> datetime:
    """When a run ended, as DuckDB returns times of the archive: in UTC, without saying so."""
    assert run.finished_at is not None
    return run.finished_at.replace(tzinfo=None)
