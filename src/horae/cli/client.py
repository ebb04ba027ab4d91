"""The REST client of the command line: returns plain documents, and finds jobs by id, key or name."""

import re
from typing import Any

from horae.client import Client
from horae.client.call import Call, keyed
from horae.client.methods import call_method
from horae.core.errors import Conflict, NotFound

RETRIES = 2  # few, because a person is waiting
UNFINISHED = ("scheduled", "paused")

_JOB_ID = re.compile(r"job_[0-9a-f]{32}")
_RUN_ID = re.compile(r"run_[0-9a-f]{32}")

Document = dict[str, Any]


def _create(path: str, body: object) -> Call[Any]:
    """Describe a POST with an idempotency key, which is safe to retry after a lost response."""
    created: Call[Any] = keyed(path, object, body, None)
    return created


class CommandClient(Client):
    """A client of the server that HORAE_URL and HORAE_TOKEN name."""

    def __init__(self) -> None:
        super().__init__(retries=RETRIES)

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

    def job_id(self, name: str) -> str:
        """Return the id of a job, given its id, its key, or its name if only one job has it."""
        if _JOB_ID.fullmatch(name):
            return name
        for field in ("key", "name"):
            found = self.page("/v1/jobs", **{field: name}, limit=100)["items"]
            if found:
                return _only(found, field, name)
        raise NotFound("job with the id, key or name", repr(name))


def run_id(name: str) -> str:
    """Return the id of a run; raises NotFound for anything else."""
    if not _RUN_ID.fullmatch(name):
        raise NotFound("run", f"{name!r}; a run is named by its id (run_…), which `horae runs ls --job JOB` shows")
    return name


def _only(found: list[Document], field: str, name: str) -> str:
    """Return the id of the only job, or of the only unfinished one; raises Conflict if there are several."""
    unfinished = [job for job in found if job["status"] in UNFINISHED]
    candidates = unfinished or found
    if len(candidates) > 1:
        ids = ", ".join(job["id"] for job in candidates[:5])
        raise Conflict(f"{len(candidates)} jobs have the {field} {name!r}; choose one by its id: {ids}")
    return str(candidates[0]["id"])
