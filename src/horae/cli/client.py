"""The REST client of the command line: returns plain documents, and finds jobs and runs by what people call them."""

import re
from typing import Any, Literal

from horae.cli.output import hint
from horae.client import Client
from horae.client.call import Call, keyed
from horae.client.methods import call_method
from horae.core.errors import Conflict, NotFound

RETRIES = 2  # few, because a person is waiting
UNFINISHED = ("scheduled", "paused")
CANDIDATES = 5  # that are named when several fit

_PREFIX = {kind: re.compile(rf"(?:{kind}_)?(?P<digits>[0-9a-f]{{1,32}})") for kind in ("job", "run")}
_DIGITS = 32

Document = dict[str, Any]


def _create(path: str, body: object) -> Call[Any]:
    """Describe a POST with an idempotency key, which is safe to retry after a lost response."""
    created: Call[Any] = keyed(path, object, body, None)
    return created


class CommandClient(Client):
    """A client of the server that HORAE_URL and HORAE_TOKEN name."""

    def __init__(self, *, retries: int = RETRIES) -> None:
        super().__init__(retries=retries)

    def get(self, path: str, **query: Any) -> Any:
        return self.request("GET", path, query=query)

    def page(self, path: str, *, limit: int, cursor: str | None = None, **query: Any) -> Document:
        """Return a page of a list; where the server ended a search early, it goes on until the page is full."""
        page: Document = self.get(path, **query, limit=limit, cursor=cursor)
        while page.get("searched_to") and len(page["items"]) < limit:
            following = self.get(path, **query, limit=limit - len(page["items"]), cursor=page["next_cursor"])
            page = {**following, "items": [*page["items"], *following["items"]]}
        return page

    create = call_method(_create)

    def post(self, path: str, body: object = None) -> Any:
        return self.request("POST", path, body=body)

    def patch(self, path: str, body: object) -> Any:
        return self.request("PATCH", path, body=body)

    def delete(self, path: str, **query: Any) -> Any:
        return self.request("DELETE", path, query=query)

    def job_id(self, name: str, owner: str | None = None) -> str:
        """Return the id of a job, given its id or how that begins, its key, or its name if only one job has it."""
        if _is_whole(name, "job"):
            return name
        written_as_id = name.lower().startswith("job_")  # which is looked up at once, and a name among all jobs
        if written_as_id and (begun := self._beginning("job", name, owner)) is not None:
            return begun
        for field in ("key", "name"):
            found = self.page("/v1/jobs", **{field: name}, owner=owner, limit=100)["items"]
            if found:
                return _only(found, field, name)
        if not written_as_id and (begun := self._beginning("job", name, owner)) is not None:
            return begun
        raise NotFound("job with the id, key or name", repr(name))

    def run_id(self, name: str, owner: str | None = None) -> str:
        """Return the id of a run, given the id or how it begins; raises NotFound for anything else."""
        if _is_whole(name, "run"):
            return name
        if (begun := self._beginning("run", name, owner)) is not None:
            return begun
        raise NotFound("run", f"{name!r}; a run is named by its id (run_…), which `horae runs ls --job JOB` shows")

    def _beginning(self, kind: Literal["job", "run"], name: str, owner: str | None) -> str | None:
        """Return the only id that begins so; None if none does, raises Conflict if several do."""
        begins = _PREFIX[kind].fullmatch(name.lower())
        if begins is None:
            return None
        prefix = begins["digits"]
        found = self.get(f"/v1/{kind}s", id_prefix=prefix, owner=owner, limit=CANDIDATES + 1)["items"]
        if len(found) > 1:
            more = ["and more"] if len(found) > CANDIDATES else []
            lines = [f"several {kind}s begin with {prefix!r}; give more digits:", *map(_candidate, found[:CANDIDATES])]
            raise Conflict("\n".join([*lines, *more]))
        return str(found[0]["id"]) if found else None


def _is_whole(name: str, kind: Literal["job", "run"]) -> bool:
    begins = _PREFIX[kind].fullmatch(name)
    return begins is not None and name.startswith(f"{kind}_") and len(begins["digits"]) == _DIGITS


def _candidate(found: Document) -> str:
    named = " ".join(str(found.get("name") or found.get("key") or found["task"]).split())
    return f"{found['id']}  {named}, {found['status']}, {hint(found.get('due_at') or found['created_at'])}"


def _only(found: list[Document], field: str, name: str) -> str:
    """Return the id of the only job, or of the only unfinished one; raises Conflict if there are several."""
    unfinished = [job for job in found if job["status"] in UNFINISHED]
    candidates = unfinished or found
    if len(candidates) > 1:
        ids = ", ".join(job["id"] for job in candidates[:CANDIDATES])
        raise Conflict(f"{len(candidates)} jobs have the {field} {name!r}; choose one by its id: {ids}")
    return str(candidates[0]["id"])
