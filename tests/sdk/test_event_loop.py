"""Reaching the store from anywhere: any event loop, any thread, a forked child, and no trace of it at the end."""

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import uvloop

from horae import Horae
from horae.core.errors import Misconfigured, Unavailable
from horae.ports.reader import RunFilter
from horae.ports.store import Store
from horae.sdk.connection import Connection
from horae.sdk.event_loop import WouldBlock
from horae.sdk.open_store import opened_connection
from tests.live import environment
from tests.sdk.conftest import settings
from tests.sdk.tasks import Tasks, declare


def sdk_threads() -> int:
    return sum(thread.name == "horae-sdk" for thread in threading.enumerate())


async def count(store: Store) -> int:
    return len((await store.list_runs(RunFilter(), cursor=None, limit=1000)).items)


async def test_any_number_of_event_loops_and_threads_share_one_connection(
    address: str, app: Horae, tasks: Tasks, store: Store
) -> None:
    async def submit_two() -> None:
        await tasks.add.submit(1)
        await tasks.add.submit(2)

    def one_thread(number: int) -> None:
        tasks.add.submit_sync(number)
        asyncio.run(submit_two())
        uvloop.run(submit_two())
        assert tasks.add.submit_many_sync([{"left": 1}, {"left": 2}])[1].status_sync() == "queued"

    await submit_two()
    with ThreadPoolExecutor(8) as pool:
        await asyncio.gather(*(asyncio.wrap_future(pool.submit(one_thread, number)) for number in range(8)))
    assert sdk_threads() == 1
    assert await count(store) == 2 + 8 * 7


async def test_a_call_that_would_block_the_event_loop_is_refused(tasks: Tasks) -> None:
    handle = await tasks.add.submit(1)
    for verb, call in {
        "submit": lambda: tasks.add.submit_sync(1),
        "submit_many": lambda: tasks.add.submit_many_sync([{"left": 1}]),
        "result": handle.result_sync,
        "status": handle.status_sync,
        "cancel": handle.cancel_sync,
    }.items():
        with pytest.raises(WouldBlock, match=rf"{verb}_sync\(\) would block .*await … \.{verb}\(\.\.\.\)"):
            call()


async def test_handles_work_without_an_event_loop(tasks: Tasks) -> None:
    def script() -> None:
        handle = tasks.add.using(delay=60).submit_sync(1)
        assert handle.status_sync() == "scheduled"
        with pytest.raises(TimeoutError):
            handle.result_sync(timeout=0.05)
        assert handle.cancel_sync() == "cancelled"

    await asyncio.to_thread(script)


async def test_what_is_closed_opens_again_when_it_is_used(app: Horae, tasks: Tasks, store: Store) -> None:
    async with app:
        await tasks.add.submit(1)
    assert sdk_threads() == 0
    await tasks.add.submit(2)
    await app.close()
    await app.close()
    assert sdk_threads() == 0
    assert await count(store) == 2
    await asyncio.to_thread(tasks.add.submit_sync, 3)
    await asyncio.to_thread(app.close_sync)
    assert sdk_threads() == 0


async def test_closing_ends_every_wait_with_a_reason(app: Horae, tasks: Tasks) -> None:
    handle = await tasks.add.submit(1)
    waiting = asyncio.create_task(handle.result(timeout=30))
    await asyncio.sleep(0)
    await tasks.add.submit(2)  # so that the wait has begun
    await app.close()
    with pytest.raises(Unavailable, match="closed"):
        await waiting


async def test_entering_the_application_tells_at_once_what_is_wrong(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    app = Horae(store=f"sqlite:///{blocked}/horae.db")
    for _ in range(2):  # and the next use tries again
        with pytest.raises((Unavailable, Misconfigured)):
            async with app:
                pass
    with pytest.raises(Misconfigured, match="HORAE_STORE"):
        async with Horae(store="mysql://nowhere"):
            pass
    assert sdk_threads() == 0


async def test_a_cancelled_wait_is_the_callers_own(app: Horae, tasks: Tasks) -> None:
    handle = await tasks.add.submit(1)
    waiting = asyncio.create_task(handle.result())
    await tasks.add.submit(2)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await handle.status() == "queued"


async def test_a_bound_application_works_where_it_is_bound(address: str) -> None:
    app = Horae(store="mysql://nowhere", owner="ada")
    tasks = declare(app)
    places: list[str] = []

    async def note(connection: Connection) -> None:
        places.append(threading.current_thread().name)

    async with opened_connection(settings(address), app.registry) as connection:
        with app.bind(connection):
            handle = await tasks.add.submit(1)
            assert await handle.status() == "queued"
            assert await asyncio.to_thread(handle.cancel_sync) == "cancelled"
            await app._bridge.call(note)
            await asyncio.to_thread(lambda: app._bridge.call_sync(note, "note"))
    assert places == [threading.current_thread().name] * 2
    assert sdk_threads() == 0
    with pytest.raises(Misconfigured):
        await tasks.add.submit(2)
    await app.close()


SCRIPT = """
import asyncio, os, sys, threading
from horae import Horae

app = Horae(store=sys.argv[1])

@app.task
def greet(name: str) -> str:
    return name

async def main() -> None:
    print((await greet.submit("Ann")).id)

{body}
"""


def run_script(address: str, body: str, tmp_path: Path) -> list[str]:
    """A script in a process of its own, which must end by itself, in order and without a word of complaint."""
    file = tmp_path / "script.py"
    file.write_text(SCRIPT.format(body=textwrap.dedent(body)))
    command = [sys.executable, "-X", "dev", "-W", "error", str(file), address]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60)
    complaints = [line for line in done.stderr.splitlines() if not line.startswith("Executing <")]  # slow, says asyncio
    assert (done.returncode, complaints) == (0, [])
    return done.stdout.split()


async def printed_and_written(address: str, store: Store, body: str, tmp_path: Path, number: int) -> None:
    lines = await asyncio.to_thread(run_script, address, body, tmp_path)
    assert len(set(lines)) == number
    page = await store.list_runs(RunFilter(task="script.greet"), cursor=None, limit=100)
    assert {f"job_{run.job_id}" for run in page.items} == set(lines)


async def test_a_script_may_run_one_loop_after_the_other(address: str, store: Store, tmp_path: Path) -> None:
    body = """
        asyncio.run(main())
        asyncio.run(main())
        print(greet.submit_sync(name="Bob").id)
    """
    await printed_and_written(address, store, body, tmp_path, 3)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
async def test_a_forked_child_opens_a_connection_of_its_own(address: str, store: Store, tmp_path: Path) -> None:
    body = """
        print(greet.submit_sync(name="parent").id, flush=True)
        if os.fork() == 0:
            print(greet.submit_sync(name="child").id, flush=True)
            asyncio.run(main())
            sys.exit(0)
        _, status = os.wait()
        assert status == 0, status
        print(greet.submit_sync(name="parent again").id)
    """
    await printed_and_written(address, store, body, tmp_path, 4)
    if address.startswith("sqlite"):
        assert not Path(address.removeprefix("sqlite:///") + "-journal").exists()
