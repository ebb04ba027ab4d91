"""Runs schemathesis against a server, with requests generated from its OpenAPI document."""

import itertools
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import jwt
import schemathesis
from hypothesis import strategies as st
from schemathesis.config import SchemathesisConfig
from schemathesis.core.failures import Failure
from schemathesis.engine import events, from_schema

SHOWN_FAILURES = 10
PATIENCE_SECONDS = 10
STREAMS = ("/v1/events", "/v1/jobs/{id}/logs", "/v1/runs/{id}/logs")
STREAM_SECONDS = 1  # of reading an endless stream
STREAM_EXAMPLES = 20  # at most
LINES = "application/x-ndjson"
ACCEPTED = "Schema-violating request accepted"
DOCUMENT = "GET /openapi.json"  # schemathesis fetches it once, at the start

CHECKS = {
    "use_after_free": {"enabled": False},  # DELETE cancels a job, which can still be read
    "negative_data_rejection": {"expected-statuses": [400, 401, 403, 404, 405, 409, 410, 412, 413, 414, 422, 429, 431]},
    "positive_data_acceptance": {"enabled": False},  # a job may be well-formed and its task unknown, or its key taken
}

_MINUTES = st.integers(0, 59).map(str) | st.sampled_from(["*", "*/5", "0,30", "10-20"])
_HOURS = st.integers(0, 23).map(str) | st.sampled_from(["*", "9-17", "*/6"])
_DAYS = st.integers(1, 28).map(str) | st.sampled_from(["*", "L", "1-7", "15W"])
_MONTHS = st.integers(1, 12).map(str) | st.sampled_from(["*", "jan-jun", "*/3"])
_WEEKDAYS = st.sampled_from(["*", "mon-fri", "0", "5#2", "sun"])
_FIELDS = {"minute": _MINUTES, "second": _MINUTES, "hour": _HOURS, "day": _DAYS, "month": _MONTHS}


@dataclass(slots=True, kw_only=True)
class Seen:
    """The findings of schemathesis."""

    answers: dict[str, Counter[int]] = field(default_factory=dict)  # by operation
    phases: Counter[str] = field(default_factory=Counter)
    failures: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    lenient: list[str] = field(default_factory=list)  # accepted although invalid by the document
    broken: list[str] = field(default_factory=list)  # errors of schemathesis itself
    seconds: float = 0.0

    def __add__(self, other: "Seen") -> "Seen":
        """Return the findings of two runs together."""
        names, kinds = self.answers.keys() | other.answers, self.failures.keys() | other.failures
        return Seen(
            answers={name: self.answers.get(name, Counter()) + other.answers.get(name, Counter()) for name in names},
            phases=self.phases + other.phases,
            failures={kind: self.failures.get(kind, []) + other.failures.get(kind, []) for kind in kinds},
            lenient=self.lenient + other.lenient,
            broken=self.broken + other.broken,
            seconds=self.seconds + other.seconds,
        )

    @property
    def requests(self) -> int:
        return sum(answers.total() for answers in self.answers.values())

    def without_success(self) -> list[str]:
        """Return the operations that never responded with 2xx."""
        return [name for name, answers in self.answers.items() if not any(200 <= status < 300 for status in answers)]

    def story(self) -> str:
        """Return every kind of failure with one example."""
        kinds = [
            f"{len(example)} × {name}: {title}\n{min(example, key=len)[:2000]}"
            for (name, title), example in self.failures.items()
        ]
        return "\n\n".join([*self.broken, *kinds[:SHOWN_FAILURES]])

    def table(self) -> Iterator[str]:
        """Return the number of responses of each operation by status."""
        phases = ", ".join(f"{phase} {count}" for phase, count in self.phases.items())
        yield f"{self.requests} requests in {self.seconds:.0f} s ({self.requests / self.seconds:.0f}/s): {phases}"
        for name, answers in sorted(self.answers.items()):
            statuses = "  ".join(f"{status}: {count}" for status, count in sorted(answers.items()))
            yield f"{name:42} {answers.total():6}   {statuses}"
        yield from (f"accepted, but wrong by the document: {failure}" for failure in self.lenient)


def _is_mistaken(case: schemathesis.Case, failure: Failure) -> bool:
    """Whether schemathesis wrongly reports that an invalid request was accepted.

    A body may be left out, NDJSON may be any text, and a batch is accepted even if some of its jobs are invalid.
    """
    return (
        "positive test case" in failure.message
        or case.media_type == LINES
        or (case.operation.path == "/v1/jobs/batch" and "jobs" in failure.message)
    )


# --- what the document alone cannot tell: which tasks there are, what is there to be acted upon, and its formats


class Guide:
    """Changes most of the valid requests so that they can succeed; invalid ones are left alone."""

    def __init__(self, client: httpx2.Client) -> None:
        self._client = client
        self._turns = itertools.count()

    def help(self, case: schemathesis.Case) -> None:
        """Put into a request what its sender would know: tasks, a key of its own, and ids that fit the operation."""
        turn = next(self._turns)
        if case.meta is None or case.meta.generation.mode != schemathesis.GenerationMode.POSITIVE or turn % 8 == 0:
            return
        headers = case.headers or {}
        if headers.get("Idempotency-Key"):
            headers["Idempotency-Key"] = "again" if turn % 16 == 1 else f"key-{turn}"
        if headers.get("If-Match"):
            headers["If-Match"] = "*"
        for made_up in ("cursor", "last_event_id"):
            (case.query or {}).pop(made_up, None)  # such values come from the server
        case.body = _bearable(_known_tasks(case.body))
        if case.operation.label == "POST /v1/runs/{id}/retry" and turn % 4 == 1:
            case.path_parameters["id"] = self._failed_run(queue=f"guide-{turn}")  # a queue that is not paused
        if case.operation.label == "POST /v1/runs/{id}/cancel" and turn % 4 == 1:
            case.path_parameters["id"] = self._waiting_run()

    def _failed_run(self, queue: str) -> str:
        run = self._run_of({"task": "demo.fail", "max_retries": 0, "queue": queue})
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._get(f"/v1/runs/{run}")["status"] != "failed":
            assert time.monotonic() < deadline, f"{run} has not failed in {PATIENCE_SECONDS} s"
            time.sleep(0.02)
        return run

    def _waiting_run(self) -> str:
        return self._run_of({"task": "demo.echo", "schedule": "2999-01-01T00:00:00Z"})

    def _run_of(self, job: dict[str, object]) -> str:
        """Create a one-shot job, whose run has the same id."""
        answer = self._client.post("/v1/jobs", json=job)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"]).replace("job_", "run_")

    def _get(self, path: str) -> Any:
        return self._client.get(path).raise_for_status().json()


_PARAMS: Mapping[str, Mapping[str, object]] = {
    "demo.echo": {"message": "hello"},
    "demo.sleep": {"seconds": 0.01},
    "demo.fail": {"times": 1},
}


def _known_tasks(body: Any) -> Any:
    if isinstance(body, dict) and isinstance(body.get("jobs"), list):
        return {**body, "jobs": [_with_known_task(job) for job in body["jobs"]]}
    return _with_known_task(body)


def _bearable(body: Any) -> Any:
    """Return a body without schedules that would keep a small machine busy for hours."""
    match body:
        case {"jobs": [*jobs]}:
            return {**body, "jobs": [_bearable(job) for job in jobs]}
        case {"schedule": {"seconds": float() | int() as seconds, **rest}} if seconds < 60:
            return {**body, "schedule": {**rest, "seconds": 60 + seconds}}
        case {"start": str(start), "end": str()}:
            return {"start": f"2026-01-01{start[10:19]}Z", "end": f"2026-01-02{start[10:19]}Z"}
        case _:
            return body


def _with_known_task(job: Any) -> Any:
    if not isinstance(job, dict) or not isinstance(job.get("task"), str):
        return job
    task = list(_PARAMS)[len(job["task"]) % len(_PARAMS)]
    made = {"params": _PARAMS[task], "secrets": {}, "key": f"{str(job.get('key'))[:100]}-{len(job)}"}
    return {**job, "task": task, **{name: value for name, value in made.items() if job.get(name) is not None}}


PHASES = ("examples", "coverage", "fuzzing", "stateful")


def walk(url: str, *, token: str, requests: int) -> Seen:
    """Follow the links of the document until enough requests are sent.

    Responses differ each time, which makes schemathesis end a walk early; then another one is started.
    """
    seen = Seen()
    for seed in itertools.count(1):
        if seen.requests >= requests or seen.failures or seen.broken:
            return seen
        seen = seen + fuzz(url, token=token, phases=["stateful"], examples=100, seed=seed)
    raise AssertionError


def fuzz(url: str, *, token: str, examples: int, seed: int = 1, phases: Collection[str] = PHASES) -> Seen:
    """Send requests generated from the document of a server, `examples` of each operation.

    The phases are the examples of the document, the limits of every field, random valid and invalid values, and walks
    along the links.
    """
    headers = {"Authorization": f"Bearer {token}"}
    config = SchemathesisConfig.from_dict(
        {
            "seed": seed,
            "workers": 1,
            "request-timeout": 10,
            "max-stream-events": 1,
            "operations": [_stream(path, min(examples, STREAM_EXAMPLES)) for path in STREAMS],
            "continue-on-failure": True,
            "headers": headers,
            "generation": {"max-examples": examples, "no-shrink": True, "database": "none"},
            "checks": CHECKS,
            "phases": {phase: {"enabled": phase in phases} for phase in PHASES},
        }
    )
    client = httpx2.Client(base_url=url, headers=headers, trust_env=False)
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json", config=config)
    seen = Seen()
    seen.answers = {operation.ok().label: Counter() for operation in schema.get_all_operations()}
    seen.answers[DOCUMENT] = Counter({200: 1})
    begun = time.monotonic()
    with client, _guided_by(Guide(client)):
        for event in from_schema(schema).execute():
            _note(seen, event)
    seen.seconds = time.monotonic() - begun
    return seen


def _stream(path: str, examples: int) -> dict[str, Any]:
    """Read streams only briefly and seldom; leave the endless one out when following links."""
    return {
        "include-path": path,
        "request-timeout": STREAM_SECONDS,
        "generation": {"max-examples": examples},
        "phases": {"stateful": {"enabled": path != "/v1/events"}},
    }


@contextmanager
def _guided_by(guide: Guide) -> Iterator[None]:
    """Set hooks of schemathesis, which are global, for the duration of a run."""

    @schemathesis.hook
    def before_call(context: schemathesis.HookContext, case: schemathesis.Case, kwargs: dict[str, Any]) -> None:
        guide.help(case)

    try:
        yield
    finally:
        schemathesis.hooks.unregister(before_call)


def _note(seen: Seen, event: events.EngineEvent) -> None:
    match event:
        case events.ScenarioFinished(recorder=recorder, phase=phase):
            for case_id, interaction in recorder.interactions.items():
                name = recorder.cases[case_id].value.operation.label
                seen.answers[name][interaction.response.status_code if interaction.response else 0] += 1
                seen.phases[phase.value] += 1
            for case_id, checks in recorder.checks.items():
                case = recorder.cases[case_id].value
                for failed in (check.failure_info for check in checks if check.failure_info is not None):
                    example = f"{failed.failure.message}\n{failed.code_sample}"
                    if failed.failure.title != ACCEPTED:
                        seen.failures.setdefault((case.operation.label, failed.failure.title), []).append(example)
                    elif not _is_mistaken(case, failed.failure):
                        seen.lenient.append(example)
        case events.NonFatalError(value=error, label=label):
            seen.broken.append(f"{label}: {error!r}")
        case events.FatalError(exception=error):
            seen.broken.append(repr(error))
        case _:
            pass


schemathesis.openapi.format("cron", st.tuples(_MINUTES, _HOURS, _DAYS, _MONTHS, _WEEKDAYS).map(" ".join))
schemathesis.openapi.format("timezone", st.sampled_from(["UTC", "Europe/Paris", "America/New_York", "Asia/Kathmandu"]))
schemathesis.openapi.format("cron-year", st.integers(2027, 2100).map(str))
for _name, _strategy in _FIELDS.items():
    schemathesis.openapi.format(f"cron-{_name}", _strategy)


@schemathesis.serializer(LINES)
def _ndjson(context: schemathesis.SerializationContext, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def token_of(secret: str) -> str:
    """Return a token with every scope, signed with the secret of a server."""
    now = int(time.time())
    scopes = "jobs:read jobs:write shell admin"
    return jwt.encode({"sub": "ann", "scope": scopes, "iat": now, "exp": now + 3600}, secret, algorithm="HS256")
