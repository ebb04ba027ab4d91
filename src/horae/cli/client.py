"""The REST client as the command line needs it: plain documents, which it prints, and things found by their names."""

import re
from typing import Any

from horae import client as rest
from horae.client.call import Call, keyed
from horae.client.methods import call_method
from horae.core.errors import Conflict, NotFound

RETRIES = 2  # a person waits
UNFINISHED = ("scheduled", "paused")

_JOB_ID = re.compile(r"job_[0-9a-f]{32}")
_RUN_ID = re.compile(r"run_[0-9a-f]{32}")

Document = dict[str, Any]


def _create(path: str, body: object) -> Call[Any]:
    """A POST that makes something, safe to send again after a lost answer."""
    created: Call[Any] = keyed(path, object, body, None)
    return created


class Client(rest.Client):
    """One server, found by HORAE_URL and HORAE_TOKEN."""

    def __init__(self) -> None:
        super().__init__(retries=RETRIES)

    def get(self, path: str, **query: Any) -> Any:
        return self.request("GET", path, query=query)

    create = call_method(_create)

    def post(self, path: str, body: object = None) -> Any:
        return self.request("POST", path, body=body)

    def patch(self, path: str, body: object) -> Any:
        return self.request("PATCH", path, body=body)

    def delete(self, path: str, **query: Any) -> Any:
        return self.request("DELETE", path, query=query)

    def job_id(self, name: str) -> str:
        """The id of the job that `name` means: an id itself, or the key or name of exactly one job."""
        if _JOB_ID.fullmatch(name):
            return name
        for field in ("key", "name"):
            found = self.get("/v1/jobs", **{field: name}, limit=100)["items"]
            if found:
                return _only(found, field, name)
        raise NotFound("job with the id, key or name", repr(name))


def run_id(name: str) -> str:
    """A run is named by its id alone."""
    if not _RUN_ID.fullmatch(name):
        raise NotFound("run", f"{name!r}; a run is named by its id (run_…), which `horae runs ls --job JOB` shows")
    return name


def _only(found: list[Document], field: str, name: str) -> str:
    unfinished = [job for job in found if job["status"] in UNFINISHED]
    candidates = unfinished or found
    if len(candidates) > 1:
        ids = ", ".join(job["id"] for job in candidates[:5])
        raise Conflict(f"{len(candidates)} jobs have the {field} {name!r}; say which by its id: {ids}")
    return str(candidates[0]["id"])
