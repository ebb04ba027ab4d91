"""The OpenAPI document matches the contract, which is repeated here, and the routes."""

import base64
import hashlib
import re
from collections.abc import Iterator
from typing import Any

import httpx2
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from horae.api.app import ROUTE_MODULES, create_app
from horae.api.dispatch import mount_cache
from horae.api.dispatch.context import Services
from horae.api.openapi import examples
from horae.api.openapi.document import document, path_of
from horae.api.openapi.overlays import OVERLAYS
from horae.api.schemas import job_requests, job_views, run_views
from tests.api.harness import Api

DOCUMENT: dict[str, Any] = msgspec.json.decode(
    msgspec.json.encode(document(route for part in ROUTE_MODULES for route in part.ROUTES))
)
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]

# method, path, scope, successes, what it refuses with beside what everything does
ROUTES = """
POST   /v1/jobs                  jobs:write 201     409,413,422
POST   /v1/jobs/batch            jobs:write 200     409,413,422
POST   /v1/jobs/bulk             jobs:write 200     409,413,422
GET    /v1/jobs                  jobs:read  200     422
GET    /v1/jobs/{id}             jobs:read  200     404
PUT    /v1/jobs/{id}             jobs:write 200     404,409,412,413,422
PATCH  /v1/jobs/{id}             jobs:write 200     404,409,412,413,422
DELETE /v1/jobs/{id}             jobs:write 200     404,409,422
PUT    /v1/jobs/by-key/{key}     jobs:write 200,201 409,412,413,422
POST   /v1/jobs/{id}/run         jobs:write 202     404,409,413,422
POST   /v1/jobs/{id}/pause       jobs:write 200     404,409,413,422
POST   /v1/jobs/{id}/resume      jobs:write 200     404,409,413,422
POST   /v1/jobs/{id}/backfill    jobs:write 202     404,409,413,422
GET    /v1/jobs/{id}/status      jobs:read  200     404
GET    /v1/jobs/{id}/runs        jobs:read  200     404,422
GET    /v1/jobs/{id}/logs        jobs:read  200     404,422
GET    /v1/jobs/{id}/next        jobs:read  200     404,422
GET    /v1/jobs/{id}/slots       jobs:read  200     404,422
GET    /v1/runs                  jobs:read  200     422
GET    /v1/runs/{id}             jobs:read  200     404
GET    /v1/runs/{id}/logs        jobs:read  200     404,422
GET    /v1/runs/{id}/why         jobs:read  200     404
POST   /v1/runs/bulk             jobs:write 200     409,413,422
POST   /v1/runs/{id}/cancel      jobs:write 200     404,409,413,422
POST   /v1/runs/{id}/retry       jobs:write 202     404,409,413,422
GET    /v1/dead-letters          jobs:read  200     422
POST   /v1/dead-letters/requeue  jobs:write 200     413,422
POST   /v1/dead-letters/discard  jobs:write 200     413,422
GET    /v1/tasks                 jobs:read  200     -
GET    /v1/workers               jobs:read  200     -
GET    /v1/queues                jobs:read  200     -
PATCH  /v1/queues/{name}         admin      200     404,413,422
GET    /v1/usage                 jobs:read  200     -
GET    /v1/archive               admin      200     409,422
POST   /v1/archive/restore       jobs:write 200     404,409,413,422
POST   /v1/schedules/preview     jobs:read  200     413,422
GET    /v1/events                jobs:read  200     422
GET    /healthz                  -          200     -
GET    /readyz                   -          200     503
GET    /metrics                  -          200     -
GET    /openapi.json             -          200     -
GET    /docs                     -          200     -
GET    /                         -          200     -
"""
QUERIES = """
/v1/jobs                 status last_run_status task name key queue label owner q limit cursor
/v1/jobs/{id}/runs       status limit cursor
/v1/jobs/{id}/logs       follow
/v1/jobs/{id}/next       count
/v1/jobs/{id}/slots      start end limit cursor
/v1/runs                 job_id status owner task queue start_time end_time limit cursor
/v1/runs/{id}/logs       follow
/v1/dead-letters         group limit cursor
"""
OF_EVERYTHING_SCOPED = {400, 401, 403, 429, 503}
CREATING = ("/v1/jobs", "/v1/jobs/batch", "/v1/jobs/{id}/run", "/v1/jobs/{id}/backfill", "/v1/runs/{id}/retry")

JOB_DEFAULTS = {
    "params": {},
    "schedule": "now",
    "queue": "default",
    "priority": 0,
    "on_failure": "continue",
    "max_retries": 3,
    "retry": {"initial_seconds": 5, "factor": 2, "max_seconds": 600, "jitter": True},
    "overlap": "skip",
    "misfire": "once",
    "catchup_seconds": 3600,
    "allow_unknown_task": False,
}
WITHOUT_DEFAULT = {"task", "secrets", "name", "key", "ordering_key", "timeout_seconds", "start_within_seconds"}
OPERATION_IDS = """
acts  backfill pause resume run_now
archive  list_days restore
batch  create_batch
bulk  jobs runs
dead_letters  discard list_letters requeue
docs  front reference
events  listen
health  health metrics readiness
jobs  cancel create list_jobs list_runs logs patch put put_by_key show slots status upcoming
openapi  show
queues  change list_queues
runs  cancel list_runs logs retry show why
schedules  show_preview
tasks  list_tasks list_workers
usage  show
"""
JOB_FIELDS = (JOB_DEFAULTS.keys() | WITHOUT_DEFAULT | {"labels"}) - {"secrets", "allow_unknown_task"}

FIELDS = """
Job      id owner created_by status next_run_at created_at updated_at revision last_run description omitted
Status   job_id run_id status due_at started_at finished_at attempt progress worker_id lateness_ms next_run_at
Run      id job_id status trigger slot due_at started_at finished_at lateness_ms attempt attempts crashes worker_id
Run      progress result error params name key labels task queue priority owner created_by omitted
Slot     from to count outcome reason run_id
Batch    items accepted rejected
BatchItem id error
Preview  description fires warnings
Fire     at note
Why      reason detail expected_at
Resolved matched done remaining
Queue    name depth oldest_age_seconds running lateness_p99_ms paused concurrency
Task     name schema
Error    type message
Problem  type title status detail code errors
JobPage  items next_cursor searched_to
RunPage  items next_cursor searched_to
DeadLetterPage items next_cursor searched_to
"""
WORDS = """
Job.status     scheduled paused finished cancelled
Job.misfire    skip once all
Job.overlap    allow skip buffer_one
Job.on_failure continue block
Run.trigger    schedule manual backfill requeue
Run.status     scheduled queued running retrying cancelling succeeded failed cancelled skipped
Slot.outcome   ran skipped pending
"""
BODIES = """
RunRequest      params
ResumeRequest   missed
BackfillRequest start end
AgainRequest    params
QueueRequest    paused concurrency
PreviewRequest  schedule count from
DiscardRequest  ids filter
RequeueRequest  ids filter params
BatchRequest    jobs
"""


def _listed(text: str) -> list[str]:
    return [] if text == "-" else text.split(",")


def _routes() -> list[list[str]]:
    return [line.split() for line in ROUTES.strip().splitlines()]


def _table(text: str) -> dict[str, set[str]]:
    """Return the first word of each line with the remaining words."""
    found: dict[str, set[str]] = {}
    for name, *words in (line.split() for line in text.strip().splitlines()):
        found[name] = found.get(name, set()) | set(words)
    return found


def _operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, verbs in DOCUMENT["paths"].items():
        yield from ((path, verb, each) for verb, each in verbs.items())


def _named(each: dict[str, Any], place: str) -> set[str]:
    return {param["name"] for param in each["parameters"] if param["in"] == place}


# --- against the contract


@pytest.mark.parametrize("route", _routes(), ids=lambda route: " ".join(route[:2]))
def test_a_route_of_the_contract_has_its_scope_codes_and_parameters(route: list[str]) -> None:
    method, path, scope, successes, refusals = route
    each = DOCUMENT["paths"][path][method.lower()]
    answers = {int(status) for status in each["responses"]}
    assert {status for status in answers if status < 300} == set(map(int, _listed(successes)))
    assert answers >= set(map(int, _listed(refusals)))
    assert method != "GET" or _named(each, "query") >= _table(QUERIES).get(path, set())
    if scope == "-":
        assert each["security"] == []
    else:
        assert each["security"] == [{"bearer": [scope]}]
        assert answers >= OF_EVERYTHING_SCOPED


def test_there_is_nothing_that_the_contract_does_not_know() -> None:
    there = {(verb.upper(), path) for path, verb, _ in _operations()}
    assert there == {(method, path) for method, path, *_ in _routes()}


def test_what_creates_takes_an_idempotency_key_and_changes_of_jobs_take_a_condition() -> None:
    for path in CREATING:
        assert "Idempotency-Key" in _named(DOCUMENT["paths"][path]["post"], "header"), path
    for verb in ("put", "patch"):
        each = DOCUMENT["paths"]["/v1/jobs/{id}"][verb]
        assert "If-Match" in _named(each, "header")
        assert "ETag" in each["responses"]["200"]["headers"]
    assert {"ETag", "Location"} <= DOCUMENT["paths"]["/v1/jobs"]["post"]["responses"]["201"]["headers"].keys()
    assert "Last-Event-ID" in _named(DOCUMENT["paths"]["/v1/events"]["get"], "header")


def test_a_new_job_has_the_fields_and_defaults_of_the_contract() -> None:
    job = SCHEMAS["JobRequest"]
    assert job["required"] == ["task"]
    assert job["additionalProperties"] is False
    assert job["properties"].keys() == JOB_DEFAULTS.keys() | WITHOUT_DEFAULT | {"labels"}
    assert {name: job["properties"][name]["default"] for name in JOB_DEFAULTS} == JOB_DEFAULTS
    assert all(job["properties"][name].get("default") is None for name in WITHOUT_DEFAULT)
    assert SCHEMAS["BatchJobRequest"]["properties"].keys() - job["properties"].keys() == {"idempotency_key"}
    assert SCHEMAS["PatchRequest"]["properties"].keys() == job["properties"].keys()
    assert SCHEMAS["ReplacementRequest"]["properties"].keys() == job["properties"].keys() | job_requests.READ_ONLY


@pytest.mark.parametrize(("name", "fields"), _table(FIELDS).items())
def test_an_answer_has_the_fields_of_the_contract(name: str, fields: set[str]) -> None:
    assert SCHEMAS[name]["properties"].keys() >= fields
    if name == "Job":
        assert SCHEMAS[name]["properties"].keys() == fields | JOB_FIELDS


@pytest.mark.parametrize(("name", "fields"), _table(BODIES).items())
def test_a_body_has_the_fields_of_the_contract(name: str, fields: set[str]) -> None:
    assert SCHEMAS[name]["properties"].keys() == fields
    assert SCHEMAS[name]["additionalProperties"] is False


@pytest.mark.parametrize(("place", "words"), _table(WORDS).items())
def test_a_closed_choice_has_the_words_of_the_contract(place: str, words: set[str]) -> None:
    name, field = place.split(".")
    assert set(SCHEMAS[name]["properties"][field]["enum"]) == words


def test_the_limits_of_a_schedule_say_whether_they_are_part_of_it() -> None:
    for form in SCHEMAS["ScheduleObject"]["oneOf"]:
        if form["properties"]["type"]["const"] in ("every", "cron", "calendar"):
            assert "inclusive" in form["properties"]["starts_at"]["description"]
            assert "exclusive" in form["properties"]["ends_at"]["description"]


def test_every_form_of_a_schedule_is_described() -> None:
    forms = {
        form["properties"]["type"]["const"]: form["properties"].keys() for form in SCHEMAS["ScheduleObject"]["oneOf"]
    }
    options = {"type", "timezone", "starts_at", "ends_at", "jitter_seconds", "dst"}
    assert forms == {
        "now": {"type", "timezone"},
        "at": {"type", "time", "timezone"},
        "every": options | {"seconds", "anchor"},
        "cron": options | {"expression"},
        "calendar": options | {"year", "month", "day", "hour", "minute", "second", "weekdays"},
    }


def test_refusals_are_problem_documents_and_say_when_to_come_back() -> None:
    for name, response in DOCUMENT["components"]["responses"].items():
        assert response["content"].keys() == {"application/problem+json"}, name
    for status in (429, 503):
        assert "Retry-After" in DOCUMENT["components"]["responses"][f"Problem{status}"]["headers"]


# --- against the routes, and in itself


def test_every_route_is_described() -> None:
    for part in ROUTE_MODULES:
        for route in part.ROUTES:
            assert DOCUMENT["paths"][path_of(route)].keys() == {method.lower() for method in route.operations}


def test_operation_ids_stay_because_generated_clients_name_their_methods_after_them() -> None:
    expected = {f"{module}.{name}" for module, names in _table(OPERATION_IDS).items() for name in names}
    assert {each["operationId"] for _, _, each in _operations()} == expected


def test_every_operation_has_a_summary_a_name_of_its_own_and_a_known_tag() -> None:
    names = [each["operationId"] for _, _, each in _operations()]
    assert len(set(names)) == len(names)
    tags = {tag["name"] for tag in DOCUMENT["tags"]}
    for path, verb, each in _operations():
        assert re.fullmatch(r"[A-Z][^.]+", each["summary"]), f"{verb} {path}: {each['summary']}"
        assert set(each["tags"]) <= tags


def test_every_reference_and_every_link_leads_somewhere() -> None:
    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            yield from (part for word, part in value.items() if word == "$ref")
        for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from references(part)

    for reference in references(DOCUMENT):
        found = DOCUMENT
        for step in reference.removeprefix("#/").split("/"):
            assert step in found, reference
            found = found[step]
    names = {each["operationId"]: _named(each, "path") for _, _, each in _operations()}
    links = [
        link
        for _, _, each in _operations()
        for response in each["responses"].values()
        for link in response.get("links", {}).values()
    ]
    assert links
    assert all(link.get("parameters", {}).keys() == names[link["operationId"]] for link in links)


def test_what_is_said_over_the_types_is_said_of_fields_that_there_are() -> None:
    structs = {
        name: kind
        for module in (*ROUTE_MODULES, job_requests, job_views, run_views)
        for name, kind in vars(module).items()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    }
    for name, fields in OVERLAYS.items():
        assert fields.keys() <= {each.encode_name for each in msgspec.structs.fields(structs[name])}, name


def test_timestamps_say_that_they_are() -> None:
    for name in ("Job", "Run", "Status", "Worker"):
        for field, schema in SCHEMAS[name]["properties"].items():
            if field.endswith("_at"):
                formats = {choice.get("format") for choice in schema.get("anyOf", [schema])}
                assert "date-time" in formats, f"{name}.{field}"


# --- the examples work


async def test_the_examples_work(api: Api) -> None:
    job = await api.create(schedule="every 5m")
    failed = await api.create("demo.fail", max_retries=0)
    [run] = await api.hand.claim()
    await api.hand.fail(await api.hand.start(run))
    recurring, letter = f"/v1/jobs/{job['id']}", f"/v1/runs/{failed['id'].replace('job_', 'run_')}"
    places = {
        "JobRequest": ("POST", "/v1/jobs"),
        "BatchRequest": ("POST", "/v1/jobs/batch"),
        "ReplacementRequest": ("PUT", recurring),
        "PatchRequest": ("PATCH", recurring),
        "RunRequest": ("POST", f"{recurring}/run"),
        "BackfillRequest": ("POST", f"{recurring}/backfill"),
        "EmptyRequest": ("POST", f"{recurring}/pause"),
        "ResumeRequest": ("POST", f"{recurring}/resume"),
        "PreviewRequest": ("POST", "/v1/schedules/preview"),
        "QueueRequest": ("PATCH", "/v1/queues/default"),
        "RequeueRequest": ("POST", "/v1/dead-letters/requeue"),
        "DiscardRequest": ("POST", "/v1/dead-letters/discard"),
        "JobBulkRequest": ("POST", "/v1/jobs/bulk"),
        "RunBulkRequest": ("POST", "/v1/runs/bulk"),
        "AgainRequest": ("POST", f"{letter}/retry"),
        "RestoreRequest": ("POST", "/v1/archive/restore"),
    }
    assert places.keys() == examples.EXAMPLES.keys()
    again = examples.EXAMPLES["AgainRequest"].values()
    for name in ("AgainRequest", *(name for name in places if name != "AgainRequest")):
        for body in examples.EXAMPLES[name].values():
            if name == "ResumeRequest":
                await api.post(f"{recurring}/pause")
            answer = await api.client.request(*places[name], json=body)
            retried_before = name == "AgainRequest" and body is not next(iter(again))
            assert answer.status_code == 409 if retried_before else answer.is_success, f"{name}: {answer.text}"


async def test_the_example_of_lines_works(api: Api) -> None:
    answer = await api.client.post(
        "/v1/jobs/batch", content=examples.LINES_EXAMPLE, headers={"Content-Type": "application/x-ndjson"}
    )
    assert (answer.json()["accepted"], answer.json()["rejected"]) == (2, 0)


def test_every_body_has_an_example() -> None:
    for path, verb, each in _operations():
        for media, content in each.get("requestBody", {"content": {}})["content"].items():
            assert content["examples"], f"{verb} {path} {media}"


# --- served


async def test_the_document_is_served(api: Api) -> None:
    answer = await api.client.get("/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    served = answer.json()
    assert served["components"] == DOCUMENT["components"]
    assert served["paths"] == DOCUMENT["paths"]


async def test_the_document_tells_where_it_is_mounted(services: Services) -> None:
    outer = Starlette(routes=[Mount("/scheduler", create_app(services))])
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(outer), base_url="http://localhost") as client:
        assert (await client.get("/scheduler/openapi.json")).json()["servers"] == [{"url": "/scheduler"}]
        assert 'data-prefix="/scheduler"' in (await client.get("/scheduler/docs")).text
        assert 'href="/scheduler/docs"' in (await client.get("/scheduler/")).text


async def test_where_clients_choose_the_mount_path_few_pages_are_kept(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mount_cache, "MAX_PATHS", 2)
    app = create_app(services)
    outer = Starlette(routes=[Mount("/{tenant}", app)])
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(outer), base_url="http://localhost") as client:
        for path in ("/a", "/b", "/c", "/a"):
            assert f'data-prefix="{path}"' in (await client.get(f"{path}/docs")).text
            assert len(app.state.references._kept) <= 2
            assert len(app.state.documents._kept) <= 2


@pytest.mark.parametrize("path", ["/", "/docs"])
async def test_a_page_needs_nothing_from_elsewhere_and_runs_nothing_but_its_own(api: Api, path: str) -> None:
    page = await api.client.get(path)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", page.text)
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "frame-ancestors 'none'" in policy
    for tag in ("style", "script"):
        for text in re.findall(f"<{tag}>(.*?)</{tag}>", page.text, re.DOTALL):
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not re.findall(r"\son[a-z]+=|\sstyle=", page.text)  # which the Content-Security-Policy would block


async def test_the_reference_tells_of_every_operation_and_type(api: Api) -> None:
    page = (await api.client.get("/docs")).text
    for path, verb, each in _operations():
        assert f'<section id="{each["operationId"]}">' in page
        assert f'data-method="{verb.upper()}" data-path="{path}"' in page
    assert all(f'<section id="type-{name}">' in page for name in SCHEMAS)
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(re.findall(r'id="([^"]+)"', page))


@pytest.mark.parametrize("route", _routes(), ids=lambda route: " ".join(route[:2]))
async def test_a_method_that_a_route_does_not_know_is_told_with_those_it_does(api: Api, route: list[str]) -> None:
    path = re.sub(r"{\w+}", "x", route[1])
    allowed = {verb.upper() for verb in DOCUMENT["paths"][route[1]]}
    answer = await api.client.request("TRACE", path)
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
    assert set(answer.headers["allow"].split(", ")) == allowed | ({"HEAD"} if "GET" in allowed else set())


async def test_a_name_in_a_path_is_not_taken_for_an_id(api: Api) -> None:
    answer = await api.client.patch("/v1/jobs/batch", json={})
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


async def test_head_answers_where_get_does_and_begins_no_stream(api: Api) -> None:
    job = await api.create(schedule="every 5m")
    await api.post(f"/v1/jobs/{job['id']}/run", status=202)
    for path in ("/v1/jobs", f"/v1/jobs/{job['id']}", f"/v1/jobs/{job['id']}/logs", "/v1/events", "/docs", "/healthz"):
        head = await api.client.head(path)
        assert head.status_code == 200, path
        if path == f"/v1/jobs/{job['id']}":
            assert head.headers["etag"] == '"1"'
    assert (await api.client.head("/v1/jobs/job_x")).status_code == 404
