"""Sends every kind of bad token to every route: the code must be right, nothing may leak, and nothing may change.

The routes are those of the application itself, so that a new one cannot be forgotten.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2

from horae.api.app import ROUTE_MODULES
from horae.api.http.operation import Operation, Scope
from horae.core.ids import Ids
from tests.api.tokens import AUDIENCE, OTHER_RSA_KEY, by_key, by_public_key, claims, tampered, unsigned

OWNER, STRANGER = "ann", "ben"
EVERY_SCOPE = "jobs:read jobs:write shell"
MARKER = "only-ann-knows"  # in the names, keys, queues, labels and parameters of everything that ann owns
BROKEN = b'{"broken'
LACKING = {
    Scope.READ: "jobs:write shell",
    Scope.WRITE: "jobs:read shell",
    Scope.ADMIN: EVERY_SCOPE,
}

Dump = Callable[[], Awaitable[dict[str, list[str]]]]
Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """One method of one route."""

    method: str
    path: str
    operation: Operation

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def streams(self) -> bool:
        """Whether a successful response would never end."""
        return self.path == "/v1/events"


ENTRIES = [
    Entry(method, route.path.replace(":path}", "}"), operation)
    for part in ROUTE_MODULES
    for route in part.ROUTES
    for method, operation in route.operations.items()
]
GUARDED = [entry for entry in ENTRIES if entry.operation.scope is not None]
OPEN_PATHS = {"/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/"}
CREATING = {
    "POST /v1/jobs",
    "POST /v1/jobs/batch",
    "PUT /v1/jobs/by-key/{key}",
}  # a stranger gets something of their own


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The jobs and runs of ann: one-shot, recurring and failed jobs, a waiting run and a dead letter."""

    jobs: tuple[str, ...]
    runs: tuple[str, ...]
    letter: str

    @property
    def ids(self) -> tuple[str, ...]:
        return (*self.jobs, *self.runs, self.letter)

    def things(self, path: str) -> tuple[str, ...]:
        """Return a value for the parameter in a path."""
        if "{id}" not in path:
            return ("",)
        return self.jobs if path.startswith("/v1/jobs/") else (*self.runs, self.letter)


def new_jobs() -> list[dict[str, Any]]:
    """Return the jobs that ann creates; the last one fails."""
    common = {"queue": MARKER, "labels": {"label": MARKER}, "name": MARKER, "params": {"message": MARKER}}
    return [
        {"task": "demo.echo", "schedule": "every 10s", "key": MARKER, **common},
        {"task": "demo.echo", "schedule": "2099-01-01T00:00:00Z", **common},
        {"task": "demo.fail", "max_retries": 0, "name": MARKER},
    ]


class Matrix:
    """Sends requests to a server and compares the responses."""

    def __init__(self, client: httpx2.AsyncClient, dump: Dump, now: float) -> None:
        self._client = client
        self._dump = dump
        self._now = now
        self._ids = Ids(wall=lambda: now)

    # --- tokens

    def token(self, sub: str, scope: str = EVERY_SCOPE, **claimed: Any) -> str:
        return by_key(claims(self._now, sub, scope, **claimed))

    def bad_tokens(self) -> Iterator[tuple[str, str | None]]:
        """Yield every kind of unauthenticated request."""
        good = claims(self._now, OWNER, f"{EVERY_SCOPE} admin")
        yield "no token", None
        yield "wrong signature", by_key(good, OTHER_RSA_KEY)
        yield "tampered", tampered(by_key(good))
        yield "expired", by_key({**good, "exp": int(self._now) - 1})
        yield "endless", by_key({name: value for name, value in good.items() if name != "exp"})
        yield "alg none", unsigned(good)
        yield "HS256 with the public key", by_public_key(good)
        yield "HS256 with the public key, and no kid", by_public_key(good, kid=None)
        yield "wrong audience", by_key({**good, "aud": f"not-{AUDIENCE}"})
        yield "no owner", by_key({**good, "sub": ""})
        yield "garbage", "garbage"

    # --- asking

    async def ask(
        self, entry: Entry, thing: str, token: str | None, world: World, *, content: bytes | None = None
    ) -> httpx2.Response:
        path = entry.path.replace("{id}", thing).replace("{key}", MARKER).replace("{name}", MARKER)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        body = None if content is not None else _body(entry, world)
        if content is not None:
            headers["Content-Type"] = "application/json"
        method = "HEAD" if entry.streams and token is not None else entry.method
        return await self._client.request(method, path, headers=headers, json=body, content=content)

    def absent(self, thing: str) -> str:
        """Return an id of the same kind that does not exist."""
        return f"{thing[:4]}{self._ids()}"

    # --- what must hold

    async def refuses_bad_tokens(self, entry: Entry, world: World) -> None:
        before = await self._dump()
        for name, token in self.bad_tokens():
            for thing in world.things(entry.path):
                answer = await self.ask(entry, thing, token, world)
                absent = await self.ask(entry, self.absent(thing), token, world)
                broken = await self.ask(entry, thing, token, world, content=BROKEN)
                assert answer.status_code == 401, (str(entry), name, answer.text)
                assert answer.headers["www-authenticate"].startswith('Bearer realm="horae"'), (str(entry), name)
                assert without_id(answer) == without_id(absent) == without_id(broken), (str(entry), name)
                _reveals_nothing(answer, world)
        assert await self._dump() == before, str(entry)

    async def refuses_missing_scopes(self, entry: Entry, world: World) -> None:
        assert entry.operation.scope is not None
        before = await self._dump()
        for owner in (OWNER, STRANGER):
            for scope in (LACKING[entry.operation.scope], "", "shell", "Admin ADMIN jobs:Read jobs"):
                token = self.token(owner, scope)
                for thing in world.things(entry.path):
                    answer = await self.ask(entry, thing, token, world)
                    absent = await self.ask(entry, self.absent(thing), token, world)
                    broken = await self.ask(entry, thing, token, world, content=BROKEN)
                    assert answer.status_code == 403, (str(entry), owner, scope, answer.text)
                    assert without_id(answer) == without_id(absent) == without_id(broken), (str(entry), owner, scope)
                    _reveals_nothing(answer, world)
        assert await self._dump() == before, str(entry)

    async def hides_from_strangers(self, entry: Entry, world: World) -> None:
        before = await self._dump()
        token = self.token(STRANGER)
        for thing in world.things(entry.path):
            answer = await self.ask(entry, thing, token, world)
            if thing:
                missing = self.absent(thing)
                absent = await self.ask(entry, missing, token, world)
                broken = await self.ask(entry, thing, token, world, content=BROKEN)
                assert answer.status_code == 404, (str(entry), answer.text)
                assert without_id(answer, thing) == without_id(absent, missing) == without_id(broken, thing), str(entry)
            elif entry.operation.scope is Scope.ADMIN:
                assert answer.status_code == 403, (str(entry), answer.text)
            else:
                assert answer.is_success, (str(entry), answer.text)
                _reveals_nothing(answer, world, own=str(entry) in CREATING)
        after = await self._dump()
        if str(entry) in CREATING:
            lost = [row for table, rows in before.items() for row in set(rows) - set(after[table])]
            assert lost == [], str(entry)
        else:
            assert after == before, str(entry)

    async def lets_owners_in(self, entry: Entry, world: World) -> None:
        """Check that the same requests succeed with the right token."""
        token = self.token(OWNER, f"{EVERY_SCOPE} admin")
        answers = [await self.ask(entry, thing, token, world) for thing in world.things(entry.path)]
        statuses = {answer.status_code for answer in answers}
        assert not statuses & {401, 403, 429, 500, 503}, (str(entry), [answer.text for answer in answers])
        assert statuses & {200, 201, 202, 409}, (str(entry), [answer.text for answer in answers])


def without_id(answer: httpx2.Response, thing: str = "") -> tuple[object, ...]:
    """Return a response without the id that was requested."""
    headers = {name: value for name, value in answer.headers.items() if name not in ("date", "content-length")}
    text = answer.text.replace(thing, "…") if thing else answer.text
    return answer.status_code, headers, text


def _reveals_nothing(answer: httpx2.Response, world: World, *, own: bool = False) -> None:
    """Return `own` when the response repeats what the stranger sent."""
    response = f"{answer.headers} {answer.text}"
    assert not any(one in response for one in world.ids), response
    assert own or MARKER not in response, response


def _body(entry: Entry, world: World) -> Body | None:
    if entry.operation.body is None:
        return None
    bodies: dict[str, Body] = {
        "POST /v1/jobs": {"task": "demo.echo"},
        "POST /v1/jobs/batch": {"jobs": [{"task": "demo.echo"}]},
        "PATCH /v1/jobs/{id}": {"priority": 1},
        "PUT /v1/jobs/{id}": {"task": "demo.echo", "schedule": "2099-01-01T00:00:00Z"},
        "PUT /v1/jobs/by-key/{key}": {"task": "demo.echo", "schedule": "every 1h"},
        "POST /v1/jobs/{id}/backfill": {"start": "2020-01-01T00:00:00Z", "end": "2020-01-01T00:01:00Z"},
        "POST /v1/dead-letters/requeue": {"ids": [world.letter]},
        "POST /v1/dead-letters/discard": {"ids": [world.letter]},
        "POST /v1/jobs/bulk": {"action": "run", "ids": list(world.jobs)},
        "POST /v1/runs/bulk": {"action": "retry", "ids": [world.letter]},
        "POST /v1/schedules/preview": {"schedule": "@daily"},
        "PATCH /v1/queues/{name}": {"paused": False},
        "POST /v1/archive/restore": {"ids": []},
    }
    return bodies.get(str(entry), {})
