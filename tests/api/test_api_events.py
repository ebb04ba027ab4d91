"""Events and logs as streams over HTTP: resumed without loss or repetition, ended at once when the server stops."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from horae import AsyncClient
from horae.api.dispatch import sse
from horae.api.dispatch.context import Services
from horae.api.http.admission import Admission
from horae.api.routes.events import MESSAGES
from horae.client import Absent, Event, Forbidden, RequestInvalid, TooOld
from horae.core.model import Run
from horae.ports.clock import StoreClock
from horae.ports.store import Store
from horae.run_logs import LogWriter
from tests.api.harness import Hand
from tests.api.serving import ByName, Served, served

PATIENCE = 20
MARKER = "marker"  # the name of jobs that only show that a listener receives events


@pytest.fixture
async def clock(store: Store) -> StoreClock:
    """Real time, because the feed polls by itself."""
    clock = StoreClock()
    clock.sync(await store.time(), asked_at=clock.elapsed(), answered_at=clock.elapsed())
    return clock


@pytest.fixture
async def server(services: Services) -> AsyncIterator[Served]:
    async with served(services, ByName()) as here:
        yield here


@pytest.fixture
async def ada(server: Served) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.url, "ada") as client:
        yield client


class Heard:
    """Collects the messages of a stream in the background."""

    def __init__(self, client: AsyncClient, **wanted: Any) -> None:
        self.events: list[Event] = []
        self.begun = asyncio.Event()
        self._stream = client.events(**wanted)
        self._listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for event in self._stream:
            if event.job is not None and event.job.name == MARKER:
                self.begun.set()
            else:
                self.events.append(event)

    async def until(self, enough: Callable[[list[Event]], bool]) -> list[Event]:
        async with asyncio.timeout(PATIENCE):
            while not enough(self.events):
                if self._listening.done():
                    await self._listening
                await asyncio.sleep(0.01)
        return self.events

    async def stop(self) -> None:
        self._listening.cancel()
        await asyncio.wait([self._listening])


async def listening(client: AsyncClient, **wanted: Any) -> Heard:
    """Return a listener that has received an event, and therefore receives all that follow."""
    heard = Heard(client, **wanted)
    async with asyncio.timeout(PATIENCE):
        while not heard.begun.is_set():
            await client.jobs.create("demo.echo", name=MARKER, schedule={"type": "every", "seconds": 86_400})
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(heard.begun.wait(), 0.3)
    return heard


def types(events: list[Event]) -> list[str]:
    return [event.type for event in events]


async def finish(hand: Hand) -> Run:
    [run] = await hand.claim()
    running = await hand.start(run)
    await hand.succeed(running, '"done"')
    return running


# --- events ----------------------------------------------------------------------------------------------------------


async def test_a_listener_hears_of_jobs_and_of_the_ends_of_runs(ada: AsyncClient, hand: Hand) -> None:
    heard = await listening(ada)
    job = await ada.jobs.create("demo.echo", params={"message": "hi"})
    await finish(hand)
    created, ended = (await heard.until(lambda events: "run.succeeded" in types(events)))[-2:]
    assert (created.type, created.job_id, created.run) == ("job.created", job.id, None)
    assert created.job is not None
    assert created.job.params == {"message": "hi"}
    assert (ended.type, ended.job_id, ended.job) == ("run.succeeded", job.id, None)
    assert ended.run is not None
    assert (ended.run_id, ended.run.status, ended.run.result) == (ended.run.id, "succeeded", "done")
    assert ended.id
    await heard.stop()


async def test_each_act_on_a_job_is_an_event(ada: AsyncClient) -> None:
    heard = await listening(ada, types=["job.*"])
    job = await ada.jobs.create("demo.echo", schedule="every 1h")
    await ada.jobs.patch(job.id, priority=5)
    await ada.jobs.pause(job.id)
    await ada.jobs.resume(job.id)
    await ada.jobs.delete(job.id)
    events = await heard.until(lambda events: "job.cancelled" in types(events))
    assert types(events) == [f"job.{word}" for word in ("created", "updated", "paused", "resumed", "cancelled")]
    await heard.stop()


async def test_other_owners_hear_nothing(server: Served, ada: AsyncClient) -> None:
    async with AsyncClient(server.url, "bob") as bob, AsyncClient(server.url, "root") as root:
        of_bob, of_all = await listening(bob), await listening(root, owner="*")
        job = await ada.jobs.create("demo.echo", schedule="every 1h")
        await of_all.until(lambda events: job.id in [event.job_id for event in events])
        own = await bob.jobs.create("demo.echo", schedule="every 1h")
        events = await of_bob.until(lambda events: bool(events))
        assert [event.job_id for event in events] == [own.id]
        with pytest.raises(Forbidden):
            await anext(bob.events(owner="ada"))
        with pytest.raises(Forbidden):
            await anext(bob.events(owner="*"))
        with pytest.raises(Absent):
            await anext(bob.events(job_id=job.id))
        await of_bob.stop()
        await of_all.stop()


async def test_who_comes_back_with_the_last_id_misses_and_repeats_nothing(
    server: Served, ada: AsyncClient, services: Services
) -> None:
    heard = await listening(ada)
    first = await ada.jobs.create("demo.echo", schedule="every 1h")
    [event] = await heard.until(lambda events: len(events) == 1)
    assert event.job_id == first.id
    await heard.stop()
    made = [(await ada.jobs.create("demo.echo", schedule="every 1h")).id for _ in range(3)]
    result = await ada.jobs.batch([{"task": "demo.echo", "schedule": "every 1h"} for _ in range(5)])
    made += [item.id or "" for item in result.items]
    again = Heard(ada, last_event_id=event.id)
    events = await again.until(lambda events: len(events) >= 8)
    assert sorted(event.job_id for event in events) == sorted(made)
    middle = events[4].id
    await again.stop()
    rest = Heard(ada, last_event_id=middle)
    assert [event.job_id for event in await rest.until(lambda events: len(events) >= 3)] == [
        event.job_id for event in events[5:]
    ]
    await rest.stop()


async def test_a_client_goes_on_by_itself_when_the_server_comes_back(services: Services) -> None:
    """A stopping server ends its streams at once; the client resumes with its last event id."""
    async with served(services, ByName()) as before, AsyncClient(before.url, "ada") as ada:
        heard = await listening(ada)
        first = await ada.jobs.create("demo.echo", schedule="every 1h")
        await heard.until(lambda events: len(events) == 1)
        began = time.monotonic()
        await before.stop()
        assert time.monotonic() - began < 2
        services.closing.clear()
        port = int(before.url.rpartition(":")[2])
        async with served(services, ByName(), port=port):
            second = await ada.jobs.create("demo.echo", schedule="every 1h")
            events = await heard.until(lambda events: len(events) >= 2)
            assert [event.job_id for event in events] == [first.id, second.id]
            await heard.stop()


@pytest.mark.parametrize("ident", ["nonsense", "7", "1-0-1000000000", "99.9-0-1", "-1"])
async def test_an_id_that_leads_nowhere_is_refused_with_what_to_do(ada: AsyncClient, ident: str) -> None:
    with pytest.raises(TooOld, match="without Last-Event-ID") as refused:
        await anext(ada.events(last_event_id=ident))
    assert (refused.value.status, refused.value.code) == (410, "gone")


@pytest.mark.parametrize("wrong", ["run.fail", "runs.*", "run.f*", "", "job.created,,"])
async def test_types_that_do_not_exist_are_refused(server: Served, wrong: str) -> None:
    async with httpx2.AsyncClient(base_url=server.url, headers={"Authorization": "Bearer ada"}) as http:
        answer = await http.get("/v1/events", params={"types": wrong})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/types"


async def test_types_are_chosen_by_name_and_by_group(ada: AsyncClient, hand: Hand) -> None:
    heard = await listening(ada, types=["job.created", "run.cancelled"])
    cancelled = await ada.jobs.create("demo.echo", schedule="2099-01-01T00:00:00Z")
    run_id = cancelled.id.replace("job_", "run_")
    await ada.runs.cancel(run_id)
    await ada.jobs.create("demo.echo")
    await finish(hand)
    last = await ada.jobs.create("demo.echo", schedule="every 1h")
    events = await heard.until(lambda events: events[-1:] != [] and events[-1].job_id == last.id)
    assert types(events) == ["job.created", "run.cancelled", "job.created", "job.created"]
    await heard.stop()


async def test_starts_and_progress_are_heard_of_while_somebody_listens(ada: AsyncClient, hand: Hand) -> None:
    heard = await listening(ada, types=["run.*", "job.created"])
    await ada.jobs.create("demo.sleep", params={"seconds": 9})
    [claimed] = await hand.claim()
    running = await hand.start(claimed)
    [_, started] = await heard.until(lambda events: len(events) == 2)
    assert (started.type, started.run_id) == ("run.started", f"run_{running.id}")
    await heard.stop()


async def test_a_stream_says_where_it_stands_and_stays_alive(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horae.api.dispatch.sse.KEEP_ALIVE_SECONDS", 0.05)
    async with (
        httpx2.AsyncClient(base_url=server.url, headers={"Authorization": "Bearer ada"}) as http,
        http.stream("GET", "/v1/events") as response,
    ):
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-store"
        seen = b""
        async with asyncio.timeout(PATIENCE):
            async for data in response.aiter_bytes():
                seen += data
                if seen.count(b": keep-alive\n\nid: ") >= 2:
                    break
        assert seen.startswith(f"retry: {sse.RETRY_MILLISECONDS}\n\nid: ".encode())


async def test_a_stream_ends_when_its_token_expires(services: Services) -> None:
    expires_at = services.clock.now().timestamp() + 0.3
    async with (
        served(services, ByName(lambda: expires_at)) as here,
        httpx2.AsyncClient(base_url=here.url, headers={"Authorization": "Bearer ada"}) as http,
        asyncio.timeout(PATIENCE),
    ):
        assert (await http.get("/v1/events")).status_code == 200  # reads to the end, so there was one


async def test_the_head_of_a_stream_can_be_asked_for(server: Served) -> None:
    async with httpx2.AsyncClient(base_url=server.url, headers={"Authorization": "Bearer ada"}) as http:
        answer = await http.head("/v1/events")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")


# --- logs ------------------------------------------------------------------------------------------------------------


@pytest.fixture
async def writer(services: Services) -> AsyncIterator[LogWriter]:
    writer = LogWriter(services.store.blobs, services.clock)
    yield writer
    await writer.close()


async def collect(lines: AsyncIterator[str], into: list[str]) -> None:
    async for line in lines:
        into.append(line.partition(" ")[2])


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - what is waited for is written by another task
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("by", ["run", "job"])
async def test_a_log_is_followed_from_before_the_start_to_the_end(
    ada: AsyncClient, hand: Hand, writer: LogWriter, by: str
) -> None:
    job = await ada.jobs.create("demo.echo")
    lines: list[str] = []
    run_id = job.id.replace("job_", "run_")
    log = ada.runs.logs(run_id, follow=True) if by == "run" else ada.jobs.logs(job.id, follow=True)
    following = asyncio.create_task(collect(log, lines))
    [run] = await hand.claim()
    running = await hand.start(run)
    attempt = writer.open(running.id, running.fence)
    attempt.write("INFO", "one\ntwo  lines")
    await until(lambda: len(lines) == 2)
    attempt.write("WARNING", "three")
    attempt.close()
    await hand.succeed(running)
    async with asyncio.timeout(PATIENCE):
        await following
    assert lines == ["INFO one", " two  lines", "WARNING three"]
    assert [line.partition(" ")[2] async for line in ada.runs.logs(run_id)] == lines


async def test_a_log_that_is_complete_is_told_at_once_and_ends(
    server: Served, ada: AsyncClient, hand: Hand, writer: LogWriter
) -> None:
    await ada.jobs.create("demo.fail")
    [run] = await hand.claim()
    attempt = writer.open(run.id, run.fence)
    running = await hand.start(run)
    attempt.write("INFO", "trying")
    attempt.close()
    await hand.succeed(running)
    async with httpx2.AsyncClient(base_url=server.url, headers={"Authorization": "Bearer ada"}) as http:
        text = (await http.get(f"/v1/runs/run_{run.id}/logs", params={"follow": "1"})).text
    assert f"event: log\nid: {run.id}/00000001/000001\ndata: " in text
    assert text.endswith(f'event: end\ndata: {{"run_id":"run_{run.id}","status":"succeeded","error":null}}\n\n')


async def test_a_log_is_resumed_after_what_arrived(
    server: Served, ada: AsyncClient, hand: Hand, writer: LogWriter
) -> None:
    await ada.jobs.create("demo.echo")
    [run] = await hand.claim()
    running = await hand.start(run)
    attempt = writer.open(run.id, run.fence)
    blobs = server.services.store.blobs
    for number, words in enumerate(("first", "second", "third"), 1):
        attempt.write("INFO", words)
        await writer.close()
        assert len(await blobs.under(f"logs/{run.id}/")) == number
    await hand.succeed(running)
    for path in (f"/v1/runs/run_{run.id}/logs", f"/v1/jobs/job_{run.job_id}/logs"):
        async with httpx2.AsyncClient(base_url=server.url, headers={"Authorization": "Bearer ada"}) as http:
            place = {"Last-Event-ID": f"{run.id}/00000001/000002"}
            text = (await http.get(path, params={"follow": "1"}, headers=place)).text
        assert "third" in text
        assert "second" not in text


@pytest.mark.parametrize("place", ["nonsense", "0/1/2", f"{'0' * 32}/00000001/000001"])
async def test_a_place_in_another_log_leads_nowhere(server: Served, ada: AsyncClient, hand: Hand, place: str) -> None:
    job = await ada.jobs.create("demo.echo")
    async with httpx2.AsyncClient(base_url=server.url, headers={"Authorization": "Bearer ada"}) as http:
        for path in (f"/v1/jobs/{job.id}/logs", f"/v1/runs/{job.id.replace('job_', 'run_')}/logs"):
            answer = await http.get(path, params={"follow": "1", "last_event_id": place})
            assert (answer.status_code, answer.json()["code"]) == (410, "gone")


async def test_the_log_of_a_job_that_is_cancelled_before_any_run_ends(ada: AsyncClient) -> None:
    job = await ada.jobs.create("demo.echo", schedule={"type": "every", "seconds": 86_400})
    following = asyncio.create_task(collect(ada.jobs.logs(job.id, follow=True), lines := []))
    await asyncio.sleep(0)
    await ada.jobs.delete(job.id)
    async with asyncio.timeout(PATIENCE):
        await following
    assert lines == []


async def test_foreign_logs_are_absent(server: Served, ada: AsyncClient) -> None:
    job = await ada.jobs.create("demo.echo")
    async with AsyncClient(server.url, "bob") as bob:
        for log in (bob.jobs.logs(job.id, follow=True), bob.runs.logs(job.id.replace("job_", "run_"), follow=True)):
            with pytest.raises(Absent):
                await anext(log)


async def test_a_wrong_word_for_follow_is_refused(ada: AsyncClient) -> None:
    job = await ada.jobs.create("demo.echo")
    with pytest.raises(RequestInvalid):
        await ada.request("GET", f"/v1/jobs/{job.id}/logs", query={"follow": "yes"})


async def test_following_ends_at_once_when_the_server_stops(server: Served, ada: AsyncClient) -> None:
    job = await ada.jobs.create("demo.echo", schedule="2099-01-01T00:00:00Z")
    async with httpx2.AsyncClient(base_url=server.url, headers={"Authorization": "Bearer ada"}) as http:
        path = f"/v1/runs/{job.id.replace('job_', 'run_')}/logs?follow=1"
        async with http.stream("GET", path) as response:
            chunks = response.aiter_bytes()
            await anext(chunks)
            began = time.monotonic()
            stopping = asyncio.create_task(server.stop())
            assert [chunk async for chunk in chunks] == []
            await stopping
    assert time.monotonic() - began < 2


# --- how many, and how large


async def test_a_large_result_is_left_out_of_its_event_and_nothing_is_kept_when_all_have_left(
    server: Served, ada: AsyncClient, hand: Hand
) -> None:
    heard = await listening(ada)
    job = await ada.jobs.create("demo.echo")
    [run] = await hand.claim()
    await hand.succeed(await hand.start(run), f'"{"x" * 100_000}"')
    event = (await heard.until(lambda events: "run.succeeded" in types(events)))[-1]
    assert event.run is not None
    assert (event.run.omitted, event.run.result, event.run.params) == (["result"], None, {})
    assert 0 < MESSAGES.size < 100_000
    assert len((await ada.runs.get(job.id.replace("job", "run"))).result) == 100_000
    await heard.stop()
    async with asyncio.timeout(10):
        while MESSAGES.size or server.services.feed._loader._slices:  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("path", ["/v1/events", "/v1/jobs/{job}/logs?follow=1"])
async def test_open_streams_are_counted_until_they_end(services: Services, path: str) -> None:
    admission = Admission(streams=4)
    async with (
        served(services, ByName(), admission=admission) as server,
        httpx2.AsyncClient(base_url=server.url) as http,
    ):
        headers = {"Authorization": "Bearer ann"}
        job = (await http.post("/v1/jobs", json={"task": "demo.echo", "schedule": "@yearly"}, headers=headers)).json()
        path = path.format(job=job["id"])
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(2):
                answer = await stack.enter_async_context(http.stream("GET", path, headers=headers))
                assert answer.status_code == 200
            refused = await http.get(path, headers=headers)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            assert refused.json()["code"] == "rate_limited"
            assert (await http.head(path, headers=headers)).status_code == 200
            assert (await http.get("/v1/jobs", headers=headers)).status_code == 200
            other = http.stream("GET", "/v1/events", headers={"Authorization": "Bearer bob"})
            assert (await stack.enter_async_context(other)).status_code == 200
        async with asyncio.timeout(10):
            while admission._streams:  # noqa: ASYNC110 - the server has no event for it
                await asyncio.sleep(0.005)
        async with http.stream("GET", path, headers=headers) as answer:
            assert answer.status_code == 200


async def test_what_happened_since_a_time_is_read_to_its_end(ada: AsyncClient, hand: Hand, clock: StoreClock) -> None:
    begin = clock.now()
    job = await ada.jobs.create("demo.echo")
    await finish(hand)
    async with asyncio.timeout(PATIENCE):
        happened = [event async for event in ada.events(since=begin, follow=False)]
        assert types(happened) == ["job.created", "run.succeeded"]
        assert {event.job_id for event in happened} == {job.id}
        assert [event async for event in ada.events(since=clock.now(), follow=False)] == []
        assert types([e async for e in ada.events(since=begin, types=["run.*"], follow=False)]) == ["run.succeeded"]
        assert [event async for event in ada.events(follow=False)] == [], "without a time it begins now"


async def test_what_is_no_longer_kept_cannot_be_asked_for(ada: AsyncClient, clock: StoreClock) -> None:
    with pytest.raises(TooOld, match="events are kept for 24 h, so ask for a later time than 2"):
        async for _ in ada.events(since=clock.now() - timedelta(days=2), follow=False):
            pass
    with pytest.raises(RequestInvalid, match="follow must be one of 0, 1"):
        await ada.request("GET", "/v1/events", query={"follow": 2})
