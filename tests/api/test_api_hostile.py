"""Hostile requests: each costs little, gets a short problem, and does not delay other requests."""

import asyncio
import gzip
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from horae.core.errors import MAX_FAULTS
from tests.api.harness import Api

LONG_SECONDS = 2.0  # for what takes milliseconds on an idle machine
SHORT_ANSWER = 20_000  # bytes


async def refused(api: Api, content: bytes, *, path: str = "/v1/jobs", method: str = "POST") -> dict[str, Any]:
    """Send a request and return its problem, which must come soon and be short."""
    began = time.process_time()
    answer = await api.client.request(method, path, content=content)
    took = time.process_time() - began
    problem: dict[str, Any] = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.status_code in (400, 413, 422), problem
    assert len(answer.content) < SHORT_ANSWER
    assert took < LONG_SECONDS, f"it took {took:.1f} s to refuse {len(content)} bytes"
    return problem


def many_names(count: int) -> dict[str, int]:
    return {f"priorit{number}": number for number in range(count)}


# --- many faults


async def test_of_a_job_with_a_hundred_thousand_unknown_fields_the_first_are_told(api: Api) -> None:
    problem = await refused(api, msgspec.json.encode({"task": "demo.echo", **many_names(100_000)}))
    assert len(problem["errors"]) == MAX_FAULTS
    assert "did you mean priority?" in problem["errors"][0]["detail"]


async def test_of_a_patch_with_a_hundred_thousand_unknown_fields_the_first_are_told(api: Api) -> None:
    job = await api.create(schedule="@daily")
    problem = await refused(api, msgspec.json.encode(many_names(100_000)), path=f"/v1/jobs/{job['id']}", method="PATCH")
    assert len(problem["errors"]) == MAX_FAULTS


async def test_of_a_hundred_thousand_wrong_parameters_the_first_are_told(api: Api) -> None:
    problem = await refused(api, msgspec.json.encode({"task": "demo.sleep", "params": many_names(100_000)}))
    assert len(problem["errors"]) == MAX_FAULTS


async def test_while_a_batch_of_wrong_jobs_is_explained_others_are_answered(api: Api) -> None:
    wrong = msgspec.json.encode({"jobs": [{"task": "demo.echo", **many_names(MAX_FAULTS)}] * 100})
    explaining = asyncio.create_task(api.client.post("/v1/jobs/batch", content=wrong))
    waits = []
    while not explaining.done():
        began = time.monotonic()
        await asyncio.sleep(0)  # let others run
        assert (await api.client.get("/healthz")).status_code == 200
        waits.append(time.monotonic() - began)
    assert (await explaining).json()["rejected"] == 100
    assert len(waits) > 10  # the requests took turns with the batch
    assert sorted(waits)[len(waits) // 2] < 0.1


# --- text that is slow to read


@pytest.mark.parametrize(
    "text",
    [
        b'\\"' * 200_000,  # escaped quotes
        b"\\\\" * 200_000 + b"\\u000",
        b"[" * 200_000,
        b'"[' * 100_000,
    ],
)
async def test_a_body_that_breaks_off_in_a_long_text_is_refused_at_once(api: Api, text: bytes) -> None:
    for beginning in (b'{"task":5,"name":"', b'{"task":"demo.echo","params":{"message":"', b'{"jobs":[{"task":"'):
        await refused(api, beginning + b"[" * 101 + text)
        await refused(api, beginning + b"[" * 101 + text, path="/v1/jobs/batch")


async def test_a_nul_in_deep_parameters_is_refused_for_the_depth(api: Api) -> None:
    for depth in (101, 450, 900):
        deep = b"[" * depth + b'"\\u0000"' + b"]" * depth
        problem = await refused(api, b'{"task":"demo.echo","params":{"message":' + deep + b"}}")
        assert "deep" in problem["detail"]


async def test_a_large_batch_that_is_none_is_refused_without_being_taken_apart(api: Api) -> None:
    body = b'{"jobs":5,"more":[' + b"{}," * 2_000_000 + b"{}]}"
    problem = await refused(api, body, path="/v1/jobs/batch")
    assert problem["status"] == 422


# --- what is no JSON


async def test_compressed_bodies_are_not_unpacked(api: Api) -> None:
    bomb = gzip.compress(b'{"task":"demo.echo","name":"' + b"x" * 20_000_000 + b'"}')
    answer = await api.client.post("/v1/jobs", content=bomb, headers={"Content-Encoding": "gzip"})
    assert answer.status_code == 400
    assert (await api.get("/v1/jobs"))["items"] == []


@pytest.mark.parametrize(
    "content_type", ["", "text/xml", "multipart/form-data; boundary=x", "application/json; charset=utf-16", "\xff/\xfe"]
)
async def test_a_body_is_read_as_json_whatever_it_is_called(api: Api, content_type: str) -> None:
    headers = {"Content-Type": content_type.encode("latin-1")}
    good = await api.client.post("/v1/jobs", content=b'{"task":"demo.echo"}', headers=headers)
    assert good.status_code == 201
    bad = await api.client.post("/v1/jobs", content=b"<task>demo.echo</task>", headers=headers)
    assert (bad.status_code, bad.json()["code"]) == (400, "malformed")


# --- text and numbers at their edges


@pytest.mark.parametrize(
    "text",
    [
        "\u202ereversed\u202c",  # right to left
        "e\u0301\u0323" * 30,  # combining
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",  # beyond the basic plane, joined
        "\ufeff\u200b\ufffd\uffff\U0010ffff",  # byte order mark, zero-width space and noncharacters
        "\x01\x1b[31m\x7f\x85\u2028",  # controls
        "'; DROP TABLE runs; --",
        "<script>alert(1)</script>{{7*7}}${7*7}%s%n../../etc/passwd",
        "=cmd|' /C calc'!A0",
    ],
)
async def test_text_comes_back_as_it_was_given_wherever_it_stands(api: Api, text: str) -> None:
    job = await api.create(
        name=text,
        key=text,
        ordering_key=text,
        labels={text: text},
        params={"message": text},
        schedule="2099-01-01T00:00:00Z",
    )
    shown = await api.get(f"/v1/jobs/{job['id']}")
    assert (shown["name"], shown["key"], shown["ordering_key"]) == (text, text, text)
    assert (shown["labels"], shown["params"]) == ({text: text}, {"message": text})
    for query in ({"name": text}, {"key": text}, {"q": text}, {"label": f"{text}:{text}"}):
        found = await api.get("/v1/jobs", params=query)
        assert [item["id"] for item in found["items"]] == [job["id"]], query


EDGES = [0, -1, 2**31 - 1, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**400, 1e308]


@pytest.mark.parametrize(
    "field",
    ["priority", "max_retries", "timeout_seconds", "start_within_seconds", "catchup_seconds", "retry", "schedule"],
)
async def test_a_number_at_an_edge_is_within_the_limits_or_refused(api: Api, field: str) -> None:
    for edge in EDGES:
        value: Any = edge
        if field == "retry":
            value = {"initial_seconds": edge, "max_seconds": edge, "factor": edge}
        if field == "schedule":
            value = {"type": "every", "seconds": edge, "jitter_seconds": edge}
        content = f'{{"task":"demo.echo","{field}":{_json(value)}}}'.encode()
        answer = await api.client.post("/v1/jobs", content=content)
        assert answer.status_code in (201, 400, 422), answer.text
        if answer.status_code == 201:
            job = await api.get(f"/v1/jobs/{answer.json()['id']}")
            assert job["task"] == "demo.echo"


def _json(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f'"{name}":{_json(item)}' for name, item in value.items()) + "}"
    return f'"{value}"' if isinstance(value, str) else repr(value)


@pytest.mark.parametrize("number", ["-1", "0", "1001", "2147483648", "9223372036854775808", "1e3", "٣", "1_0", "0x10"])
async def test_a_page_is_never_larger_than_the_limit(api: Api, number: str) -> None:
    for path in ("/v1/jobs", "/v1/runs", "/v1/dead-letters"):
        await api.get(path, 422, params={"limit": number})


@pytest.mark.parametrize("cursor", ["x", "' OR 1=1 --", "eyJhIjoxfQ==", "A" * 2000, "%00", "../..", "null", "9" * 400])
async def test_a_cursor_that_nobody_gave_leads_nowhere(api: Api, cursor: str) -> None:
    for path in ("/v1/jobs", "/v1/runs", "/v1/dead-letters"):
        answer = await api.client.get(path, params={"cursor": cursor})
        assert answer.status_code in (400, 422), answer.text


# --- schedules that are made to hurt


@pytest.mark.parametrize(
    "schedule",
    [
        "0 0 30 2 *",
        "0 0 0 31 4,6,9,11 *",
        "0 0 0 1 1 ? 1999",
        "every 1ms",
        "every 99999999999 weeks",
        {"type": "every", "seconds": 0.09},
        {"type": "every", "seconds": 1, "ends_at": "2001-01-01T00:00:00Z"},
        {"type": "every", "seconds": 3600, "starts_at": "9999-12-31T23:59:59Z", "anchor": "2026-01-01T00:00:00Z"},
        {"type": "cron", "expression": ",".join(["*"] * 5000)},
        {"type": "cron", "expression": "* * * * *", "timezone": "../../../etc/passwd"},
        {"type": "cron", "expression": "* * * * *", "timezone": "Europe/Paris\x7f"},
        {"type": "calendar", "second": list(range(-5000, 5000))},
        {"type": "calendar", "day": "31", "month": [2, 4, 6]},
    ],
)
async def test_a_schedule_that_never_fires_or_far_too_often_is_refused_at_once(api: Api, schedule: Any) -> None:
    for path in ("/v1/jobs", "/v1/schedules/preview"):
        body = {"schedule": schedule, **({"task": "demo.echo"} if path == "/v1/jobs" else {})}
        problem = await refused(api, msgspec.json.encode(body), path=path)
        assert problem["status"] == 422


@pytest.mark.parametrize(
    "schedule",
    [
        "0 0 29 2 *",
        {"type": "cron", "expression": "0 0 1 1 *", "timezone": "America/Scoresbysund"},
        {"type": "calendar", "month": 2, "day": 29, "weekdays": ["mon"], "timezone": "Pacific/Apia"},
        {"type": "every", "seconds": 0.1, "anchor": "1970-01-01T00:00:00Z"},
        {"type": "every", "seconds": 315_000_000, "anchor": "2999-01-01T00:00:00Z"},
        "* * * * * *",
    ],
)
async def test_the_farthest_and_the_densest_schedules_are_previewed_in_no_time(api: Api, schedule: Any) -> None:
    began = time.process_time()
    answer = await api.post("/v1/schedules/preview", {"schedule": schedule, "count": 1000})
    assert time.process_time() - began < LONG_SECONDS
    assert answer["fires"]


async def test_a_job_that_fires_ten_times_a_second_is_planned_a_few_runs_ahead(api: Api) -> None:
    job = await api.create(schedule={"type": "every", "seconds": 0.1}, overlap="allow")
    assert len((await api.get(f"/v1/jobs/{job['id']}/runs", params={"limit": 1000}))["items"]) <= 50


@pytest.mark.parametrize(
    "schedule",
    [
        {"type": "every", "seconds": 0.1},
        {"type": "cron", "expression": "* * * * * *", "timezone": "Europe/Berlin"},
        {"type": "cron", "expression": "30 2 * * *", "timezone": "America/New_York", "dst": {"gap": "skip"}},
    ],
)
async def test_all_of_a_schedule_is_told_in_no_time(api: Api, schedule: dict[str, Any]) -> None:
    job = await api.create(schedule=schedule, overlap="allow")
    api.clock.advance(days=3000)
    began = time.process_time()
    for span in ({}, {"end": "2044-01-01T00:00:00Z"}, {"start": "1970-01-01T00:00:00Z", "end": "2044-01-01T00:00:00Z"}):
        assert (await api.get(f"/v1/jobs/{job['id']}/slots", params={"limit": 1000, **span}))["items"]
    await api.get(f"/v1/jobs/{job['id']}/slots", 422, params={"end": "2999-12-31T23:59:59Z"})
    await api.get(f"/v1/jobs/{job['id']}/next", params={"count": 1000})
    everything = {"start": "1970-01-01T00:00:00Z", "end": "2034-01-01T00:00:00Z"}
    assert (await api.client.post(f"/v1/jobs/{job['id']}/backfill", json=everything)).status_code in (202, 422)
    assert time.process_time() - began < LONG_SECONDS


INVENTED: dict[str, Callable[[int], dict[str, Any]]] = {
    "zones": lambda n: {
        "schedule": {"type": "cron", "expression": "@daily", "timezone": f"America/Argentina/Salto_{n}"}
    },
    "fields": lambda n: {f"timeout_of_seconds_{n}_{m}": 1 for m in range(60)},
    "tasks": lambda n: {"task": f"demo.invented_task_{n}"},
}


@pytest.mark.parametrize("what", INVENTED)
async def test_a_batch_of_invented_names_is_refused_in_no_time(api: Api, what: str) -> None:
    jobs = [{"task": "demo.echo", **INVENTED[what](number)} for number in range(1000)]
    began = time.process_time()
    answer = await api.post("/v1/jobs/batch", {"jobs": jobs}, 200)
    assert answer["rejected"] == 1000
    assert time.process_time() - began < LONG_SECONDS
