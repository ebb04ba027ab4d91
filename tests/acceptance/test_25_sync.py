"""Issue 5, row 13 of the faults: a disk that fails to sync is reported, and nothing is acknowledged.

The calls fail by strace (the Debian package `strace`).
"""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.conftest import ReportFigure

pytestmark = pytest.mark.acceptance

BROKEN = "inject=fsync,fdatasync:error=EIO:when=40+"  # of each thread, from its fortieth on
WRITER = """
import asyncio, sys
from horae.core.errors import Unavailable
from horae.stores.sqlite.store import SqliteStore
from tests.conformance.builders import one_shot

async def main(path):
    store = SqliteStore(path)
    await store.open()
    for _ in range(100):
        run = one_shot()
        try:
            await store.create([run])
            print("answered", run.id, flush=True)
        except Unavailable as exc:
            print("refused", exc, flush=True)

asyncio.run(main(sys.argv[1]))
"""


def test_what_could_not_be_synced_is_refused_and_what_was_answered_is_there(
    tmp_path: Path, report_figure: ReportFigure
) -> None:
    path = tmp_path / "horae.db"
    traced = ["strace", "-f", "-qq", "-o", str(tmp_path / "trace"), "-e", "trace=fsync,fdatasync", "-e", BROKEN]
    done = subprocess.run(
        [*traced, sys.executable, "-c", WRITER, str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    lines = [line.split(" ", 1) for line in done.stdout.splitlines()]
    answered = {what for how, what in lines if how == "answered"}
    refused = [what for how, what in lines if how == "refused"]
    report_figure(f"{len(answered)} answered, then {len(refused)} refused")
    assert answered, done.stderr
    assert refused, done.stderr
    assert all("input/output error" in what for what in refused)
    assert "EIO" in (tmp_path / "trace").read_text()
    assert [how for how, _ in lines] == ["answered"] * len(answered) + ["refused"] * len(refused)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        there = {run_id.hex() for (run_id,) in db.execute("SELECT id FROM runs")}
    assert answered <= there
