"""The synchronous client against a whole server: jobs that really run, their logs and events as they happen."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from horae import Client
from horae.client import Event
from tests.live import Live, live_horae

PATIENCE = 20


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_horae(tmp_path_factory.mktemp("live"), "dev") as live:
        yield live


@pytest.fixture
def client(live: Live) -> Iterator[Client]:
    with Client(live.url) as client:
        yield client


def test_a_log_is_followed_until_the_run_has_ended(client: Client) -> None:
    job = client.jobs.create("shell.run", params={"command": ["sh", "-c", "echo one; sleep 1.2; echo two"]})
    began = time.monotonic()
    lines = client.jobs.logs(job.id, follow=True)
    assert next(lines).endswith("one")
    assert time.monotonic() - began < PATIENCE
    assert [line.rpartition(" ")[2] for line in lines] == ["two"]
    run = client.runs.get(job.id.replace("job_", "run_"))
    assert run.status == "succeeded"


def test_events_are_heard_while_they_happen_and_afterwards(client: Client) -> None:
    heard: list[Event] = []
    begun, ended = threading.Event(), threading.Event()

    def listen() -> None:
        for event in client.events(types=["job.created", "run.succeeded"]):
            heard.append(event)
            begun.set()
            if event.type == "run.succeeded" and event.run is not None and event.run.result == "over":
                break
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    deadline = time.monotonic() + PATIENCE
    while not begun.is_set() and time.monotonic() < deadline:
        client.jobs.create("demo.echo", schedule="2099-01-01T00:00:00Z")
        begun.wait(0.3)
    job = client.jobs.create("demo.echo", params={"message": "over"})
    assert ended.wait(PATIENCE)
    assert (heard[-1].job_id, heard[-1].type) == (job.id, "run.succeeded")
    missed = client.events(last_event_id=heard[0].id)
    again = [next(missed) for _ in heard[1:]]
    assert {(event.type, event.job_id) for event in heard[1:]} <= {(event.type, event.job_id) for event in again}


def test_many_jobs_are_created_and_found_again(client: Client) -> None:
    far = "2099-01-01T00:00:00Z"
    result = client.jobs.batch({"task": "demo.echo", "schedule": far, "queue": "bulk"} for _ in range(1200))
    assert (result.accepted, result.rejected) == (1200, 0)
    assert {job.id for job in client.jobs.list(queue="bulk")} == {item.id for item in result.items}


def test_a_server_that_stops_ends_its_streams_at_once(tmp_path: Path) -> None:
    with live_horae(tmp_path, "dev") as live, Client(live.url) as client:
        job = client.jobs.create("demo.echo", schedule="2099-01-01T00:00:00Z")
        log = f"{live.url}/v1/jobs/{job.id}/logs?follow=1"
        with (
            httpx2.stream("GET", f"{live.url}/v1/events", trust_env=False, timeout=PATIENCE) as events,
            httpx2.stream("GET", log, trust_env=False, timeout=PATIENCE) as lines,
        ):
            streams = [events.iter_bytes(), lines.iter_bytes()]
            for stream in streams:
                next(stream)
            began = time.monotonic()
            live.process.terminate()
            for stream in streams:
                b"".join(stream)  # to its end, which is an orderly one
            live.process.wait(PATIENCE)
        assert time.monotonic() - began < 2.5
