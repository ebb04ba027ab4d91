"""`horae bench` as users run it: every mode at a small size, rejected options, and that nothing is left behind."""

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from horae.cli.app import run
from tests.live import HORAE, environment, free_port
from tests.postgres_server import postgres_url

CONTRACT = (
    "mode",
    "store",
    "queue",
    "offered_per_s",
    "completed_per_s",
    "submitted",
    "completed",
    "lost",
    "duplicated",
    "early",
    "lateness_ms",
    "cpu_s_per_1000",
    "peak_rss_mb",
)
HAS_SCHEMA = "SELECT count(*) FROM pg_namespace WHERE nspname = $1"


def bench(folder: Path, *options: str) -> dict[str, Any]:
    """The report of a benchmark that went well and left nothing behind."""
    said = subprocess.run(
        [HORAE, "bench", *options, "-o", "json"],
        cwd=folder,
        env=environment() | {"TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert said.returncode == 0, said.stdout + said.stderr
    assert list(folder.iterdir()) == []
    report: dict[str, Any] = json.loads(said.stdout)
    assert tuple(report)[: len(CONTRACT)] == CONTRACT
    return report


def all_went_well(report: Mapping[str, Any]) -> bool:
    figures = report["lateness_ms"]
    assert -1 <= figures["p50"] <= figures["p95"] <= figures["p99"] <= figures["max"] * 1.01
    assert 0 < report["peak_rss_mb"] < 500
    assert report["problems"] == []
    wrong = report["lost"] + report["duplicated"] + report["early"]
    return wrong == 0 and report["completed"] == report["submitted"] and report["verified"]


BENCHES = {
    "now": ("--jobs", "500", "--backlog", "300"),
    "timed": ("--mode", "timed", "--rate", "200", "--seconds", "1", "--store", "sqlite:///some.db"),
    "herd": ("--mode", "herd", "--jobs", "300"),
    "cron": ("--mode", "cron", "--rate", "20", "--seconds", "2", "--overlap", "allow"),
    "cron on PostgreSQL": ("--mode", "cron", "--rate", "20", "--seconds", "2", "--store", postgres_url),
}


def test_every_mode_runs_every_job_once_and_says_so(tmp_path: Path) -> None:
    """All at the same time, for each waits most of the time."""

    def report_of(name: str) -> dict[str, Any]:
        folder = tmp_path / name
        folder.mkdir()
        return bench(folder, *(option if isinstance(option, str) else option() for option in BENCHES[name]))

    with ThreadPoolExecutor(len(BENCHES)) as pool:
        reports = dict(zip(BENCHES, pool.map(report_of, BENCHES), strict=True))
    assert [name for name, report in reports.items() if not all_went_well(report)] == []

    now, timed, herd, cron, on_postgres = reports.values()
    assert (now["mode"], now["submitted"], now["backlog"]) == ("now", 500, 300)
    assert now["store"] == "sqlite:///.horae/horae.db"
    assert now["cpu"].keys() == {"producer", "planner", "worker"}
    assert (timed["submitted"], timed["offered_per_s"]) == (200, 200.0)
    assert 0 < timed["completed_per_s"] <= 200
    assert (herd["submitted"], herd["bystanders"]) == (300, 300)
    assert herd["bystanders_ms"]["p99"] is not None
    assert (cron["overlap"], on_postgres["overlap"]) == ("allow", "skip")
    for report in (cron, on_postgres):
        assert report["slots"] == {"expected": 40, "run": report["completed"], "skipped": 0, "missing": 0}
    assert on_postgres["cpu"].keys() == {"producer", "planner", "worker", "postgres"}


# --- what ends it before its time


@contextmanager
def endless(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A benchmark that would go on for an hour, in the middle of it."""
    with subprocess.Popen(
        [HORAE, "bench", "--mode", "timed", "--seconds", "3600", *options],
        cwd=folder,
        env=environment() | {"TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            deadline = time.monotonic() + 30
            while not list(folder.glob("*/*.starts")):  # until the first job has started
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield process
        finally:
            process.kill()


async def test_an_interrupt_leaves_nothing_behind(tmp_path: Path) -> None:
    with endless(tmp_path, "--store", postgres_url()) as process:
        nodes = _children(process)
        schema = _schema_of(nodes[0])
        assert await _exists(schema)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)  # impatience does not disturb it
        assert process.communicate(timeout=30) == ("", "interrupted; the scratch data are deleted\n")
    assert process.returncode == 130
    assert len(nodes) == 2
    assert not any(map(_lives, nodes))
    assert list(tmp_path.iterdir()) == []
    assert not await _exists(schema)


def test_a_worker_that_dies_is_told_and_nothing_stays(tmp_path: Path) -> None:
    with endless(tmp_path) as process:
        planner, worker = _children(process)
        os.kill(worker, signal.SIGKILL)
        said, error = process.communicate(timeout=30)
    assert (process.returncode, said) == (1, "")
    assert error.startswith("error: the worker of the benchmark ended with exit code -9\n")
    assert "ready" in error  # the end of its log
    assert not _lives(planner)
    assert list(tmp_path.iterdir()) == []


def _children(process: subprocess.Popen[str]) -> list[int]:
    """In the order in which they were started."""
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def _schema_of(node: int) -> str:
    """The scratch schema that a node was told to use."""
    [name] = re.findall(rb"HORAE_STORE=[^\0]*search_path=(horae_bench_\w+)", Path(f"/proc/{node}/environ").read_bytes())
    return name.decode()


async def _exists(schema: str) -> bool:
    connection = await asyncpg.connect(postgres_url())
    try:
        return bool(await connection.fetchval(HAS_SCHEMA, schema))
    finally:
        await connection.close()


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


# --- what it refuses


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--mode", "later"), 'Invalid value "later" for --mode'),
        (("--rate", "10"), "--rate 10 has no effect here: now goes as fast as it can"),
        (("--mode", "timed", "--jobs", "10"), "--jobs 10 has no effect here: timed offers --rate jobs a second"),
        (("--mode", "herd", "--seconds", "5"), "--seconds 5 has no effect here: in a herd"),
        (("--mode", "herd", "--rate", "5"), "--rate 5 has no effect here: in a herd"),
        (("--mode", "cron", "--jobs", "5"), "--jobs 5 has no effect here: cron has --rate jobs"),
        (("--overlap", "allow"), "--overlap is for recurring jobs"),
        (("--mode", "cron", "--overlap", "buffer_one"), 'Invalid value "buffer_one" for --overlap'),
        (("--mode", "timed", "--rate", "0"), "Must be >= 1"),
        (("--jobs", "-5"), "Must be >= 1"),
        (("--seconds", "0"), "Must be >= 1"),
        (("--processes", "0"), "Must be >= 1"),
        (("--backlog", "-1"), "Must be >= 0"),
        (("--queue", "kafka://localhost"), "must be `store`, redis://host"),
        (("--store", "mysql://localhost"), "must begin with sqlite:///, postgresql:// or dynamodb://"),
    ],
)
def test_what_makes_no_sense_is_refused(
    options: Sequence[str], sentence: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    with contextlib.suppress(SystemExit):  # how a usage error ends
        assert run(["bench", *options]) == 2
    assert sentence in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "--store", f"postgresql://someone:secret@127.0.0.1:{free_port()}/horae"]) == 3
    said = capsys.readouterr().err
    assert said.startswith("error: PostgreSQL did not answer")
    assert "secret" not in said
