"""What a worker logs about failed attempts, and how it keeps a flood of them short."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from horae import Fatal, Horae, Run, RunFailed
from horae.core.decisions.results import Failure, Settled, fail
from horae.core.model import JobError, State
from horae.core.schedule.timestamps import rfc3339
from horae.engine import failure_log
from horae.engine.failure_log import LINES, FailureLog
from tests.core.builders import NOON, a_run
from tests.sdk.conftest import node
from tests.system.fixtures import scratch_store


def failed(message: str = "no rng", *, fatal: bool = False) -> Settled:
    error = JobError(type="ValueError", message=message)
    return fail(a_run(State.RUNNING), Failure(error=error, fatal=fatal), NOON, 0.0)


async def test_a_failed_attempt_is_logged_with_ids_that_commands_take() -> None:
    again, final = failed(), failed(fatal=True)
    with capture_logs() as lines:
        log = FailureLog()
        log.add(again)
        log.add(final)
        log.close()
    run, other = again.run, final.run
    said = {"job": f"job_{run.job_id}", "task": run.spec.task, "owner": run.owner, "attempt": 1}
    error = {"error": "ValueError: no rng"}
    retry = {"retry_at": rfc3339(run.wake_at)}
    assert lines[0] == {
        "event": "attempt_failed", "log_level": "warning", "run": f"run_{run.id}", **said, **error, **retry
    }  # fmt: skip
    assert lines[1:] == [{"event": "run_failed", "log_level": "error", "run": f"run_{other.id}", **said, **error}]


async def test_a_flood_is_summed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_log, "PERIOD_SECONDS", 0.05)
    with capture_logs() as lines:
        log = FailureLog()
        for _ in range(1000):
            log.add(failed())
        async with asyncio.timeout(5):
            while lines[-1]["event"] != "failures_not_logged":  # noqa: ASYNC110 - a list has no event
                await asyncio.sleep(0.01)
        log.add(failed())
        log.close()
    events = [line["event"] for line in lines]
    assert events == ["attempt_failed"] * LINES + ["failures_not_logged", "attempt_failed"]
    assert lines[LINES]["count"] == 1000 - LINES


async def test_a_long_error_is_cut() -> None:
    with capture_logs() as lines:
        FailureLog().add(failed("x" * 10_000))
    assert len(lines[0]["error"]) == failure_log.MAX_ERROR


async def test_a_worker_logs_every_failed_attempt_of_a_task(tmp_path: Path) -> None:
    async with scratch_store("sqlite", tmp_path) as address:
        app = Horae(store=address, owner="ada")

        @app.task("flaky", max_retries=1, timeout=timedelta(seconds=30))
        async def flaky(run: Run) -> None:
            if run.attempt == 1:
                raise ConnectionError("try again")
            raise Fatal("enough")

        quick = flaky.using(max_retries=1)
        with capture_logs() as lines:
            async with node(app, address):
                handle = await quick.submit()
                with pytest.raises(RunFailed):
                    await handle.result(timeout=60)
    told = [line for line in lines if line.get("run") == handle.run_id]
    assert [(line["event"], line["attempt"], line["error"]) for line in told] == [
        ("attempt_failed", 1, "ConnectionError: try again"),
        ("run_failed", 2, "Fatal: enough"),
    ]
    assert {(line["task"], line["owner"], line["job"]) for line in told} == {("flaky", "ada", handle.id)}
