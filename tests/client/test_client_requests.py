"""What the client sends, when it retries, and how it reads streams, against a server with scripted responses."""

import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime

import httpx2
import pytest

from horae import AsyncClient, Client
from horae.client import Event, RateLimited, Refused, ServerUnavailable, TooOld
from horae.client import retries as retries_module
from horae.client.call import change, get, keyed
from horae.client.errors import refusal
from horae.client.retries import LONGEST_WAIT, CallRetries, StreamRetries
from horae.client.streams import EventStreamParser, LineSplitter
from horae.core.errors import Misconfigured, Unavailable

URL = "http://127.0.0.1:9"
RUN = {"id": "run_1", "job_id": "job_1", "status": "queued", "trigger": "manual", "due_at": "2026-01-01T00:00:00Z"}

Answer = httpx2.Response | Exception


class Script:
    """A server that returns the given responses one after another and records the requests."""

    def __init__(self, *answers: Answer) -> None:
        self.asked: list[httpx2.Request] = []
        self._answers = iter(answers)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        request.read()
        self.asked.append(request)
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def client(self, **options: object) -> Client:
        return Client(URL, transport=httpx2.MockTransport(self), **options)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The delays are tested by themselves."""
    monkeypatch.setattr(retries_module, "FIRST_DELAY", 0.001)


def ok(body: object) -> httpx2.Response:
    return httpx2.Response(200, json=body)


def problem(status: int, code: str = "", **headers: str) -> httpx2.Response:
    return httpx2.Response(status, json={"status": status, "code": code, "detail": "no"}, headers=headers)


def streamed(*chunks: bytes, broken: bool = False) -> httpx2.Response:
    def body() -> Iterator[bytes]:
        yield from chunks
        if broken:
            raise httpx2.ReadError("gone")

    return httpx2.Response(200, content=body())


# --- when it is sent again -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure",
    [httpx2.ConnectError("refused"), httpx2.ReadError("reset"), problem(503), problem(429), problem(502)],
    ids=["refused", "reset", "503", "429", "502"],
)
def test_a_read_is_repeated_after_what_passes(failure: Answer) -> None:
    script = Script(failure, failure, ok({"items": [], "next_cursor": None}))
    with script.client() as client:
        assert list(client.jobs.list()) == []
    assert len(script.asked) == 3


def test_a_list_goes_on_over_pages_on_which_nothing_was_found() -> None:
    early = {"items": [], "next_cursor": "a", "searched_to": "2026-01-02T00:00:00Z"}
    script = Script(ok(early), ok(early | {"next_cursor": "b"}), ok({"items": [RUN], "next_cursor": None}), ok(early))
    with script.client() as client:
        assert [run.id for run in client.runs.list(q="x")] == ["run_1"]
        page = client.runs.page(q="x")
    assert [request.url.params.get("cursor") for request in script.asked] == [None, "a", "b", None]
    assert (page.next_cursor, page.searched_to) == ("a", datetime(2026, 1, 2, tzinfo=UTC))


def test_a_create_is_repeated_with_its_own_key() -> None:
    script = Script(httpx2.ReadError("reset"), problem(409, "in_flight"), ok(RUN), ok(RUN), ok(RUN))
    with script.client() as client:
        client.jobs.run("job_1")
        client.jobs.run("job_1")
        client.jobs.run("job_1", idempotency_key="mine")
    keys = [request.headers["idempotency-key"] for request in script.asked]
    assert keys[0] == keys[1] == keys[2] != keys[3]
    assert keys[4] == "mine"


@pytest.mark.parametrize("lost", [httpx2.ReadError("reset"), httpx2.ReadTimeout("slow")])
def test_what_may_have_been_done_already_is_not_repeated(lost: Exception) -> None:
    script = Script(lost)
    with script.client() as client, pytest.raises(Unavailable):
        client.jobs.delete("job_1")
    assert len(script.asked) == 1


@pytest.mark.parametrize("refused", [httpx2.ConnectError("refused"), problem(429)])
def test_what_the_server_has_not_begun_is_repeated_whatever_it_is(refused: Answer) -> None:
    script = Script(refused, ok(RUN))
    with script.client() as client:
        client.runs.cancel("run_1")
    assert len(script.asked) == 2


def test_patience_has_an_end() -> None:
    script = Script(*[problem(503)] * 9)
    with script.client(retries=2) as client, pytest.raises(ServerUnavailable) as error:
        client.tasks.list()
    assert len(script.asked) == 3
    assert isinstance(error.value, Unavailable)


def test_nobody_there_is_told_with_what_to_do() -> None:
    with (
        Script(httpx2.ConnectError("refused")).client(retries=0) as client,
        pytest.raises(Unavailable, match="horae dev"),
    ):
        client.tasks.list()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 412, 413, 422, 418, 500])
def test_a_refusal_is_raised_at_once(status: int) -> None:
    script = Script(problem(status, "why"))
    with script.client() as client, pytest.raises(Refused) as error:
        client.tasks.list()
    assert (error.value.status, error.value.code, str(error.value)) == (status, "why", "no")


def test_something_else_that_answers_is_told() -> None:
    with Script(httpx2.Response(200, text="<html>")).client() as client, pytest.raises(Unavailable, match="not Horae"):
        client.tasks.list()
    proxy = Script(httpx2.Response(504, text="<html>"))
    with proxy.client(retries=0) as client, pytest.raises(ServerUnavailable, match="504"):
        client.tasks.list()


def test_delays_grow_and_follow_what_the_server_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries_module, "FIRST_DELAY", 0.2)
    retries = CallRetries(get("/", object), url=URL, retries=9, random_factor=lambda: 1.0)
    busy = refusal(503, "", {}, b"")
    assert [round(retries.after_refusal(busy), 3) for _ in range(6)] == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0]
    assert retries.after_refusal(refusal(429, "", {"retry-after": "7"}, b"")) == 7
    with pytest.raises(RateLimited):
        retries.after_refusal(refusal(429, "", {"retry-after": str(int(LONGEST_WAIT) + 1)}, b""))
    with pytest.raises(RateLimited):  # a quota takes longer than a moment
        retries.after_refusal(refusal(429, "", {"retry-after": "1"}, b'{"code": "quota_exceeded", "detail": "full"}'))
    least_random = CallRetries(get("/", object), url=URL, retries=9, random_factor=lambda: 0.0)
    assert least_random.after_failure(httpx2.ReadError("")) == 0.1


def test_only_calls_that_can_be_repeated_are_marked_so() -> None:
    assert get("/", object).repeatable
    assert keyed("/", object, {}, None).repeatable
    assert not change("DELETE", "/", object).repeatable


# --- what is sent ----------------------------------------------------------------------------------------------------


def test_the_server_is_found_and_the_token_sent_as_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HORAE_URL", "http://horae.example:1/")
    monkeypatch.setenv("HORAE_TOKEN", "secret")
    script = Script(ok({"items": []}))
    with Client(transport=httpx2.MockTransport(script)) as client:
        client.tasks.list()
    assert str(script.asked[0].url) == "http://horae.example:1/v1/tasks"
    assert script.asked[0].headers["authorization"] == "Bearer secret"


def test_a_token_may_be_asked_for_each_time() -> None:
    tokens = iter(["one", "two"])
    script = Script(problem(503), ok({"items": []}))
    with script.client(token=lambda: next(tokens)) as client:
        client.tasks.list()
    assert [request.headers["authorization"] for request in script.asked] == ["Bearer one", "Bearer two"]


@pytest.mark.parametrize("url", ["localhost:8765", "ftp://x", "nothing"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(Misconfigured, match="is not a URL"):
        Client(url)


def test_names_in_paths_are_escaped() -> None:
    script = Script(problem(404), problem(404))
    with script.client() as client:
        for act_on in (lambda: client.jobs.upsert("a/b c?", "t"), lambda: client.queues.pause("a/b")):
            with pytest.raises(Refused):
                act_on()
    assert [request.url.raw_path for request in script.asked] == [b"/v1/jobs/by-key/a%2Fb%20c%3F", b"/v1/queues/a%2Fb"]


def test_only_what_was_said_is_changed() -> None:
    job = json.dumps({"id": "j", "owner": "o", "status": "s", "task": "t", "schedule": {}, "revision": 1})
    whole = {**json.loads(job), "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z"}
    script = Script(ok(whole), ok({"name": "q", "depth": 0, "running": 0}))
    with script.client() as client:
        client.jobs.patch("job_1", name=None, priority=3)
        client.queues.update("q", concurrency=None)
    assert [json.loads(request.content) for request in script.asked] == [
        {"name": None, "priority": 3},
        {"concurrency": None},
    ]


def test_dead_letters_are_asked_for_until_none_is_left() -> None:
    rounds = [{"matched": 10, "done": 10, "remaining": left} for left in (15, 5, 0)]
    script = Script(*map(ok, rounds), ok(rounds[0]))
    with script.client() as client:
        total = client.dead_letters.requeue({"task": "a"}, params={"n": 1}, repeat=True)
        assert (total.done, total.remaining) == (30, 0)
        assert client.dead_letters.requeue("run_1").remaining == 15
    bodies = [json.loads(request.content) for request in script.asked]
    assert bodies == [{"filter": {"task": "a"}, "params": {"n": 1}}] * 3 + [{"ids": ["run_1"]}]
    assert len({request.headers["idempotency-key"] for request in script.asked}) == 4


def test_acts_on_many_go_on_at_their_cursors() -> None:
    rounds = [
        {"matched": 10, "done": 9, "remaining": 8, "cursor": "a"},
        {"matched": 4, "done": 4, "remaining": 3, "cursor": "b"},
        {"matched": 3, "done": 3, "remaining": 0, "cursor": None},
    ]
    script = Script(*map(ok, rounds), ok(rounds[0]))
    with script.client() as client:
        total = client.jobs.bulk("cancel", {"queue": "q"}, repeat=True)
        assert (total.matched, total.done, total.remaining, total.cursor) == (17, 16, 1, None)
        assert client.runs.bulk("retry", ["run_1"], dry_run=True).cursor == "a"
    body = {"action": "cancel", "filter": {"queue": "q"}}
    assert [json.loads(request.content) for request in script.asked] == [
        body,
        {**body, "cursor": "a"},
        {**body, "cursor": "b"},
        {"action": "retry", "ids": ["run_1"], "dry_run": True},
    ]
    assert len({request.headers["idempotency-key"] for request in script.asked}) == 4


def test_repeating_ends_where_nothing_gets_done() -> None:
    script = Script(ok({"matched": 3, "done": 0, "remaining": 3}))
    with script.client() as client:
        assert client.dead_letters.discard(["run_1"], repeat=True).remaining == 3


# --- streams ---------------------------------------------------------------------------------------------------------


def event(number: int, ident: str | None = None) -> bytes:
    data = {"type": "job.created", "at": "2026-01-01T00:00:00Z", "job_id": f"job_{number}"}
    return (
        (f"id: {ident}\n" if ident else "").encode()
        + b"event: job.created\ndata: "
        + json.dumps(data).encode()
        + b"\n\n"
    )


def test_events_go_on_after_a_break_where_they_were() -> None:
    script = Script(
        streamed(b"retry: 5\n\nid: 0\n\n" + event(1, "1"), event(2, "2") + event(3, "3")[:-5], broken=True),
        httpx2.ConnectError("restarting"),
        problem(503),
        streamed(event(3, "3"), b": keep-alive\n\nid: 9\n\n"),
        streamed(event(4), event(5, "12")),
        problem(410, "gone"),
    )
    heard: list[Event] = []
    with script.client() as client, pytest.raises(TooOld):
        heard.extend(client.events(types=["job.*"], last_event_id="begin"))
    assert [(one.job_id, one.id) for one in heard] == [
        ("job_1", "1"),
        ("job_2", "2"),
        ("job_3", "3"),
        ("job_4", "9"),
        ("job_5", "12"),
    ]
    assert [request.headers.get("last-event-id") for request in script.asked] == ["begin", "2", "2", "2", "9", "12"]
    assert script.asked[0].url.params["types"] == "job.*"


def test_what_has_happened_ends_and_only_then() -> None:
    gone = b'event: run.failed\ndata: {"type": "run.failed", "at": "2026-01-01T00:00:00Z", "job_id": null}\n\n'
    script = Script(streamed(event(1, "1"), broken=True), streamed(gone + event(2, "2") + b"event: end\ndata: {}\n\n"))
    with script.client() as client:
        heard = list(client.events(since=datetime(2026, 1, 1, tzinfo=UTC), follow=False))
    assert [one.job_id for one in heard] == ["job_1", None, "job_2"], "a run that was deleted has no job any more"
    assert [dict(request.url.params) for request in script.asked] == [
        {"since": "2026-01-01T00:00:00+00:00", "follow": "0"}
    ] * 2
    assert script.asked[1].headers["last-event-id"] == "1"


async def test_the_asynchronous_client_goes_on_too() -> None:
    def body(*chunks: bytes) -> httpx2.Response:
        async def chunked() -> AsyncIterator[bytes]:
            for chunk in chunks:
                yield chunk

        return httpx2.Response(200, content=chunked())

    answers = iter([body(event(1, "1")), httpx2.ConnectError(""), body(event(2, "2")), problem(401)])
    asked: list[str | None] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.headers.get("last-event-id"))
        given = next(answers)
        if isinstance(given, Exception):
            raise given
        return given

    async with AsyncClient(URL, transport=httpx2.MockTransport(answer)) as client:
        with pytest.raises(Refused):
            assert [one.job_id async for one in client.events()] == []
    assert asked == [None, "1", "1", "2"]


def test_a_stream_that_never_began_gives_up_soon() -> None:
    script = Script(*[httpx2.ConnectError("refused")] * 9)
    with script.client(retries=2) as client, pytest.raises(Unavailable):
        next(iter(client.events()))
    assert len(script.asked) == 3


def test_a_stream_that_was_going_gives_up_after_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    retries = StreamRetries(url=URL, retries=0)
    retries.received()
    retries.raise_if_final(httpx2.ReadError(""))
    retries.delay()
    retries.raise_if_final(httpx2.ConnectError(""))
    monkeypatch.setattr(retries_module, "RECONNECT_SECONDS", -1.0)
    with pytest.raises(Unavailable):
        retries.raise_if_final(httpx2.ConnectError(""))


def test_a_log_is_followed_to_its_end_over_breaks() -> None:
    script = Script(
        streamed(b"event: log\nid: 1\ndata: one\ndata: \ndata: two\n\n", broken=True),
        streamed(b"event: log\nid: 2\ndata: three\n\nevent: end\ndata: {}\n\n", b"event: log\ndata: never\n\n"),
    )
    with script.client() as client:
        assert list(client.runs.logs("run_1", follow=True)) == ["one", "", "two", "three"]
    assert [request.headers.get("last-event-id") for request in script.asked] == [None, "1"]
    assert script.asked[0].url.params["follow"] == "1"


def test_a_text_that_broke_off_is_read_again_without_repeating_lines() -> None:
    script = Script(streamed(b"one\ntwo\nthr", broken=True), streamed(b"one\ntwo\nthree\nfour"))
    with script.client() as client:
        assert list(client.runs.logs("run_1")) == ["one", "two", "three", "four"]


def test_lines_end_where_the_wire_says() -> None:
    lines = LineSplitter()
    assert lines.feed("a\r\nb\rc\u2028d\n\u00e9".encode()[:-1]) == ["a", "b", "c\u2028d"]
    assert lines.feed("\u00e9".encode()[-1:] + b"\r") == ["\u00e9"]
    assert lines.feed(b"") == []
    assert lines.feed(b"\nnext\n\n") == ["next", ""]
    assert lines.rest() == []


def test_messages_are_read_as_the_standard_says() -> None:
    messages = EventStreamParser()
    [one] = messages.feed(b": comment\nevent: a\nid:1\ndata:x\ndata: y\nretry: 3\nother: z\n\n")
    assert (one.name, one.data, one.last_id) == ("a", "x\ny", "1")
    assert messages.feed(b"id: 2\n\n") == []
    assert messages.last_id == "2"
    [two] = messages.feed(b"data\n\n")
    assert (two.name, two.data, two.last_id) == ("message", "", "2")
    messages.feed(b"id: 3\ndata: cut sho")
    messages.reconnected()
    assert messages.last_id == "2"
