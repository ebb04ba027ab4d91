"""Every invalid request gets a problem document and changes nothing."""

import json
import re
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx2
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from horae.api.app import create_app
from horae.api.dispatch.context import Services
from horae.api.http.duplicate_keys import refuse_repeated_names
from horae.api.schemas.job_requests import JobBody
from horae.core.errors import Malformed, Unavailable
from horae.core.ids import Ids
from horae.log_setup import LogThrottle
from tests.api.harness import Api

ECHO = b'{"task":"demo.echo","params":%s}'


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        (b"{", 400, None),
        (b'{"task":"demo.echo"} x', 400, None),
        (b'{"task":5} x', 400, None),
        (b"\xff", 400, None),
        (b'{"task":"demo.echo","name":"\xff"}', 400, None),
        (ECHO % b'{"message":"\xff"}', 400, None),
        (ECHO % b'{"message":NaN}', 400, None),
        (ECHO % b'{"message":Infinity}', 400, None),
        (b'{"task":"demo.echo","name":"\\ud800"}', 400, None),
        (ECHO % b'{"message":"\\ud800"}', 400, None),
        (ECHO % (b'{"a":' * 101 + b"1" + b"}" * 101), 400, None),
        (ECHO % (b'{"a":' * 100_000 + b"1" + b"}" * 100_000), 400, None),
        (b"[]", 422, None),
        (b"null", 422, None),
        (b"", 422, "/task"),
        (b"{}", 422, "/task"),
        (b'{"task":""}', 422, "/task"),
        (b'{"task":"demo.echo","prioritty":1}', 422, "/prioritty"),
        (b'{"task":"demo.echo","a/b~c":1}', 422, "/a~1b~0c"),
        (b'{"task":"demo.echo","priority":101}', 422, "/priority"),
        (b'{"task":"demo.echo","priority":99999999999999999999}', 422, "/priority"),
        (b'{"task":"demo.echo","priority":1.5}', 422, "/priority"),
        (b'{"task":"demo.echo","priority":true}', 422, "/priority"),
        (b'{"task":"demo.echo","max_retries":1001}', 422, "/max_retries"),
        (b'{"task":"demo.echo","max_retries":-1}', 422, "/max_retries"),
        (b'{"task":"demo.echo","timeout_seconds":0}', 422, "/timeout_seconds"),
        (b'{"task":"demo.echo","timeout_seconds":1e300}', 422, "/timeout_seconds"),
        (b'{"task":"demo.echo","retry":{"factor":0}}', 422, "/retry/factor"),
        (b'{"task":"demo.echo","retry":{"factr":2}}', 422, "/retry/factr"),
        (b'{"task":"demo.echo","retry":5}', 422, "/retry"),
        (b'{"task":"demo.echo","queue":"a b"}', 422, "/queue"),
        (b'{"task":"demo.echo","queue":"a\\n"}', 422, "/queue"),
        (b'{"task":"demo.echo","queue":""}', 422, "/queue"),
        (b'{"task":"demo.echo","labels":{"a":5}}', 422, "/labels/a"),
        (b'{"task":"demo.echo","labels":[]}', 422, "/labels"),
        (b'{"task":"demo.echo","overlap":"sometimes"}', 422, "/overlap"),
        (b'{"task":"demo.echo","misfire":"never"}', 422, "/misfire"),
        (b'{"task":"demo.echo","schedule":5}', 422, "/schedule"),
        (b'{"task":"demo.echo","schedule":"0 0 30 2 *"}', 422, "/schedule"),
        (b'{"task":"demo.echo","schedule":"2027-01-01T00:00:00"}', 422, "/schedule"),
        (b'{"task":"demo.echo","schedule":{"type":"cron","expresion":"* * * * *"}}', 422, "/schedule/expresion"),
        (b'{"task":"demo.echo","name":"a\\u0000b"}', 422, "/name"),
        (ECHO % b'{"message":["\\u0000"]}', 422, "/params/message/0"),
        (ECHO % b'{"a\\u0000":1}', 422, "/params/a\0"),
        (ECHO % b"[]", 422, "/params"),
        (ECHO % b'"text"', 422, "/params"),
        (ECHO % b'{"message":1e400}', 422, "/params"),
        (b'{"task":"demo.echo","secrets":["a"]}', 422, "/secrets"),
        (b'{"task":"demo.echo","notify":[]}', 422, "/notify"),
        (b'{"task":"demo.echo","idempotency_key":"a"}', 422, "/idempotency_key"),
        (b'{"task":"demo.echo","on_failure":"stop"}', 422, "/on_failure"),
        (b'{"task":"demo.echo","on_failure":"block"}', 422, "/on_failure"),
        (b'{"task":"demo.echo","on_failure":"block","schedule":"@daily"}', 422, "/on_failure"),
        (b'{"task":"demo.echo","overlap":"buffer_all"}', 422, "/overlap"),
        (b'{"task":"demo.echo","overlap":"cancel_other"}', 422, "/overlap"),
        (b'{"task":"demo.echo","status":"paused"}', 422, "/status"),
    ],
)
async def test_a_wrong_job_is_refused(api: Api, body: bytes, status: int, pointer: str | None) -> None:
    problem = await api.post("/v1/jobs", status=status, content=body)
    assert [error["pointer"] for error in problem["errors"]][:1] == ([] if pointer is None else [pointer])
    assert (await api.get("/v1/jobs"))["items"] == []


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b'{"task":"demo.echo","task":"demo.echo"}', "task"),
        (b'{"task":"demo.sleep","\\u0074ask":"demo.echo"}', "task"),
        (b'{"task":"demo.echo","no_field":1,"no_field":2}', "no_field"),
        (b'{"task":"demo.echo","retry":{"factor":2,"factor":3}}', "factor"),
        (b'{"task":"demo.echo","labels":{"team":"a","team":"a"}}', "team"),
        (b'{"task":"demo.echo","secrets":{"pin":"1","pin":"2"}}', "pin"),
        (b'{"task":"demo.echo","schedule":{"type":"at","type":"cron","expression":"@daily"}}', "type"),
        (ECHO % b'{"message":1,"message":2}', "message"),
        (ECHO % b'{"message":[1,{"a":{"b":1 , "b" :2}}]}', "b"),
        (ECHO % b'{"message":"\\u003a","message":":"}', "message"),
        (ECHO % b'{"message":1,"message":"\\u003A"}', "message"),
        (ECHO % b'{"a:b":":","a:b":"::"}', "a:b"),
        (ECHO % b'{"message":{"":1,"":2}}', ""),
        (ECHO % ('{"ключ":1,"ключ":%s}' % ("9" * 100)).encode(), "ключ"),
    ],
)
async def test_a_name_that_is_given_twice_is_refused_in_every_object(api: Api, body: bytes, name: str) -> None:
    problem = await api.post("/v1/jobs", status=400, content=body)
    assert (problem["code"], problem["detail"]) == ("malformed", f'the name "{name}" is given twice in one object')
    assert (await api.get("/v1/jobs"))["items"] == []


async def test_a_name_that_is_given_twice_is_refused_by_every_route_that_takes_a_body(api: Api) -> None:
    job = await api.create(schedule="@daily", key="once")
    path, doubled = f"/v1/jobs/{job['id']}", b'{"params":{"message":1,"message":2}}'
    for method, where, body in [
        ("PATCH", path, doubled),
        ("PUT", path, b'{"task":"demo.echo",' + doubled[1:]),
        ("PUT", "/v1/jobs/by-key/once", b'{"task":"demo.echo",' + doubled[1:]),
        ("POST", f"{path}/run", doubled),
        ("POST", f"{path}/resume", b'{"missed":"skip","missed":"run_all"}'),
        ("POST", "/v1/schedules/preview", b'{"schedule":"@daily","count":1,"count":2}'),
        ("POST", "/v1/jobs/batch", b'{"jobs":[{"task":"demo.echo"}],"jobs":[{"task":"demo.echo"}]}'),
        ("PATCH", "/v1/queues/mail", b'{"concurrency":1,"concurrency":2}'),
    ]:
        problem = await api.ask(method, where, 400, content=body)
        assert "is given twice" in problem["detail"], (method, where)
    assert (await api.get(path)) == job
    assert [item["id"] for item in (await api.get("/v1/jobs"))["items"]] == [job["id"]]


@pytest.mark.parametrize("lines", [True, False])
async def test_of_a_batch_those_jobs_are_refused_that_give_a_name_twice(api: Api, lines: bool) -> None:
    jobs = [b'{"task":"demo.echo"}', ECHO % b'{"message":1,"message":2}', ECHO % b'{"at":"10:00:00","to":{"at":":"}}']
    content = b"\n".join(jobs) if lines else b'{"jobs":[%s]}' % b", ".join(jobs)
    kind = "application/x-ndjson" if lines else "application/json"
    answer = await api.client.post("/v1/jobs/batch", content=content, headers={"content-type": kind})
    items = answer.json()["items"]
    assert [item.get("error", {}).get("status") for item in items] == [None, 400, 422]  # the task has no such parameter
    assert items[1]["error"]["detail"] == 'the name "message" is given twice in one object'


_TEXTS = st.text(':"\\\\{}a,', max_size=3)


def _written(value: Any, colon: str) -> str:
    """Encode lists, texts and tuples of names and values, in which names may repeat, as JSON."""
    if isinstance(value, list):
        return f"[{','.join(_written(item, colon) for item in value)}]"
    if isinstance(value, tuple):
        return f"{{{','.join(f'{_written(name, colon)} : {_written(item, colon)}' for name, item in value)}}}"
    return json.dumps(value).replace(":", colon)


def _repeats(value: Any) -> bool:
    if isinstance(value, tuple):
        return len({name for name, _ in value}) < len(value) or any(_repeats(item) for _, item in value)
    return isinstance(value, list) and any(_repeats(item) for item in value)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    value=st.recursive(
        _TEXTS,
        lambda values: st.lists(values, max_size=3) | st.lists(st.tuples(_TEXTS, values), max_size=3).map(tuple),
        max_leaves=10,
    ),
    colon=st.sampled_from([":", "\\u003a", "\\u003A"]),
)
def test_only_names_that_are_given_twice_are_refused(value: Any, colon: str) -> None:
    """Colons, quotes and brackets within strings are not taken for names, however they are escaped."""
    data = _written(value, colon).encode()
    if _repeats(value):
        with pytest.raises(Malformed, match="is given twice"):
            refuse_repeated_names(data, msgspec.json.decode(data))
    else:
        refuse_repeated_names(data, msgspec.json.decode(data))


async def test_everything_that_is_wrong_is_told_at_once_with_hints(api: Api) -> None:
    problem = await api.post("/v1/jobs", {"prioritty": 1, "queue": "a b", "retry": {"factor": 0}}, 422)
    details = {error["pointer"]: error["detail"] for error in problem["errors"]}
    assert details.keys() == {"/prioritty", "/queue", "/retry/factor", "/task"}
    assert "did you mean priority?" in details["/prioritty"]


async def test_a_backslash_before_u0000_is_no_nul(api: Api) -> None:
    job = await api.create(params={"message": "\\u0000"})
    assert job["params"] == {"message": "\\u0000"}


async def test_wide_parameters_are_not_deep_ones(api: Api) -> None:
    params = {"message": "x", "deep": [[{"a": "[[[["}] for _ in range(500)]}
    await api.create(task="any", allow_unknown_task=True, params=params)


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/nothing"), ("GET", "/v1/jobs/"), ("POST", "/v1"), ("GET", "/v1/nothing")]
)
async def test_an_unknown_route_is_a_problem(api: Api, method: str, path: str) -> None:
    assert (await api.ask(method, path, 404))["code"] == "not_found"


async def test_an_unknown_method_is_a_problem_that_names_the_known_ones(api: Api) -> None:
    answer = await api.client.put("/v1/jobs")
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
    assert {method.strip() for method in answer.headers["allow"].split(",")} == {"GET", "HEAD", "POST"}


MALFORMED_IDS = ("job_1", "1", "run_" + "0" * 32, "job_" + "g" * 32, "job_%00", "job_" + "A" * 32, "..%2f")
ABSENT = "job_019a0000000070008000000000000000"


@pytest.mark.parametrize("job_id", [*MALFORMED_IDS, ABSENT])
@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", ""), ("PATCH", ""), ("DELETE", "")]
    + [("POST", f"/{act}") for act in ("run", "pause", "resume")]
    + [("GET", f"/{view}") for view in ("status", "runs", "next", "slots", "logs")],
)
async def test_an_id_that_names_nothing_is_404_before_any_complaint_about_the_rest(
    api: Api, job_id: str, method: str, path: str
) -> None:
    await api.ask(method, f"/v1/jobs/{job_id}{path}?count=x&running=x&start=x&follow=9", 404, content=b"{nonsense")


@pytest.mark.parametrize("path", ["", "/logs", "/cancel"])
@pytest.mark.parametrize("run_id", ["run_1", "job_" + "0" * 32, ABSENT.replace("job_", "run_")])
async def test_a_run_that_is_not_there_is_404(api: Api, run_id: str, path: str) -> None:
    method = "POST" if path == "/cancel" else "GET"
    await api.ask(method, f"/v1/runs/{run_id}{path}", 404, content=b"{nonsense")


async def test_a_body_that_is_too_large_is_refused_while_it_is_read(api: Api) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(1000):
            yield b" " * 1_000_000
        raise AssertionError("nobody should read so much")

    await api.post("/v1/jobs", status=413, content=endless())
    await api.post("/v1/jobs/batch", status=413, content=endless())
    await api.post("/v1/jobs", status=413, content=b" " * 12_000_000)


async def test_parameters_above_ten_megabytes_are_too_large(api: Api) -> None:
    big = {"message": "x" * (10 * 1024 * 1024)}
    await api.post("/v1/jobs", {"task": "demo.echo", "params": big}, 413)


async def test_a_page_of_another_site_cannot_create_jobs(api: Api) -> None:
    await api.post("/v1/jobs", {"task": "demo.echo"}, 403, headers={"Origin": "https://evil.example"})
    await api.post("/v1/jobs", {"task": "demo.echo"}, 403, headers={"Origin": "null"})
    await api.post("/v1/jobs", {"task": "demo.echo"}, 201, headers={"Origin": "http://localhost"})


class Broken:
    """A store that calls a function before every verb."""

    def __init__(self, store: object, error: Exception) -> None:
        self._store = store
        self._error = error

    def __getattr__(self, name: str) -> Any:
        async def fail(*args: object, **keywords: object) -> None:
            raise self._error

        return fail


def asking_broken_store(api: Api, services: Services, error: Exception) -> httpx2.AsyncClient:
    """Return a client of an API whose store raises an error for every verb."""
    store: Any = Broken(api.store, error)
    broken = Services.over(
        store,
        store,
        api.clock,
        services.metrics,
        new_id=Ids(),
        horizon=timedelta(seconds=30),
        task_defaults=lambda task: None,
        check_params=lambda task, params: [],
        ready=lambda: True,
    )
    transport = httpx2.ASGITransport(create_app(broken), raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url="http://localhost")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [(Unavailable("the disk is full"), 503, "unavailable"), (RuntimeError("a secret detail"), 500, "internal")],
)
@pytest.mark.filterwarnings("default")
async def test_a_store_that_fails_is_told_without_its_secrets(
    api: Api, services: Services, error: Exception, status: int, code: str
) -> None:
    async with asking_broken_store(api, services, error) as client:
        for method, path in (
            ("POST", "/v1/jobs"),
            ("GET", "/v1/jobs"),
            ("GET", f"/v1/jobs/{ABSENT}"),
            ("GET", "/v1/tasks"),
            ("GET", "/readyz"),
        ):
            answer = await client.request(method, path, json={"task": "demo.echo"} if method == "POST" else None)
            assert (answer.status_code, answer.json()["code"]) == (status, code)
            assert "secret" not in answer.text
            assert (answer.headers.get("retry-after") is not None) == (status == 503)
        batch = await client.post("/v1/jobs/batch", json={"jobs": [{"task": "demo.echo", "allow_unknown_task": True}]})
        assert batch.status_code == status


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    (
        *("task", "params", "name", "key", "labels", "schedule", "queue", "priority", "retry", "overlap", "other"),
        *("misfire", "max_retries", "catchup_seconds", "ordering_key", "on_failure", "start_within_seconds"),
    )
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.dictionaries(FIELDS, JSON, max_size=5), anything=st.booleans())
async def test_whatever_is_sent_is_accepted_or_a_problem(api: Api, body: dict[str, Any], anything: bool) -> None:
    content = msgspec.json.encode(body if anything else {"task": "demo.echo", **body})
    answer = await api.client.post("/v1/jobs", content=content)
    assert answer.status_code in (201, 400, 409, 422), answer.text
    if answer.status_code != 201:
        assert answer.headers["content-type"] == "application/problem+json"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=60))
async def test_whatever_bytes_are_sent_are_a_problem(api: Api, content: bytes) -> None:
    for path in ("/v1/jobs", "/v1/jobs/batch", "/v1/schedules/preview"):
        answer = await api.client.post(path, content=content)
        assert answer.status_code in (400, 422), answer.text


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:8765", 200),
        ("127.0.0.1:8765", 200),
        ("[::1]:8765", 200),
        ("rebound.example", 403),
    ],
)
async def test_a_server_for_one_machine_answers_under_local_names_only(
    services: Services, host: str, status: int
) -> None:
    transport = httpx2.ASGITransport(app=create_app(services, local_names=True))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        assert (await client.get("/v1/jobs", headers={"host": host})).status_code == status


async def test_a_store_that_is_down_is_told_once_a_second_however_many_ask(api: Api, services: Services) -> None:
    began = time.monotonic()
    async with asking_broken_store(api, services, Unavailable("gone")) as client:
        with capture_logs() as lines:
            for _ in range(100):
                assert (await client.get("/v1/jobs")).status_code == 503
    assert len(lines) <= 1 + time.monotonic() - began


def test_a_line_that_passes_tells_how_many_did_not() -> None:
    now = 0.0
    lines = LogThrottle(seconds=1, elapsed=lambda: now)
    assert [lines.admit() for _ in range(1000)] == [0] + [None] * 999
    now = 1.0
    assert [lines.admit() for _ in range(3)] == [999, None, None]
    now = 3.5
    assert lines.admit() == 2


WRONG = (None, True, 7, -1.5, 1e9, "", "no such thing", "x" * 1000, [], [[]], {}, {"no": "such"}, {"": 1})
JARGON = re.compile(r"Expected|Invalid|regex|\| null|\bstr\b|\bint\b|\bfloat\b|\bbool\b|\bdict\b|\bStruct\b|\$|`|\^")


async def test_no_field_is_refused_in_the_words_of_a_program(api: Api) -> None:
    details = []
    for field in msgspec.structs.fields(JobBody):
        for value in WRONG:
            answer = await api.client.post("/v1/jobs", json={"task": "demo.echo", field.name: value})
            details += [error["detail"] for error in answer.json().get("errors", [])]
    assert len(details) > 100
    assert [detail for detail in details if JARGON.search(detail)] == []
