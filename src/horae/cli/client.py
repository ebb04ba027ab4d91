"""A small synchronous client of the REST API, as the command line needs it."""

import json
import os
import re
from collections.abc import Mapping
from typing import Any, Self
from urllib.parse import urlsplit

import httpx2

from horae import __version__
from horae.core.errors import Conflict, Fault, Invalid, Misconfigured, NotFound, Unavailable

DEFAULT_URL = "http://127.0.0.1:8765"
TIMEOUT_SECONDS = 30.0
LOOPBACK = ("127.0.0.1", "::1", "localhost")
UNFINISHED = ("scheduled", "paused")

_JOB_ID = re.compile(r"job_[0-9a-f]{32}")
_RUN_ID = re.compile(r"run_[0-9a-f]{32}")

Document = dict[str, Any]
Scalar = str | int | float | bool | None


class Refused(Invalid):
    """The server answered with a problem document."""

    def __init__(self, problem: Mapping[str, Any]) -> None:
        faults = [
            Fault(str(item.get("pointer", "")), str(item.get("detail", ""))) for item in problem.get("errors", ())
        ]
        super().__init__(str(problem.get("detail") or problem.get("title") or "the server refused"), faults=faults)
        self.status = problem.get("status")
        self.code = str(problem.get("code", "refused"))


class Client:
    """One server, found by HORAE_URL and HORAE_TOKEN."""

    def __init__(self, url: str | None = None, token: str | None = None) -> None:
        self.url = (url or os.environ.get("HORAE_URL") or DEFAULT_URL).rstrip("/")
        token = token or os.environ.get("HORAE_TOKEN")
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Misconfigured(f"HORAE_URL = {self.url!r} is no address; write it as {DEFAULT_URL}")
        self._http = httpx2.Client(
            base_url=self.url,
            timeout=TIMEOUT_SECONDS,
            headers={"User-Agent": f"horae/{__version__}", **({"Authorization": f"Bearer {token}"} if token else {})},
            verify=parts.scheme == "https",  # plain http needs no TLS context, whose making takes 100 ms
            trust_env=parts.hostname not in LOOPBACK,  # a proxy cannot reach this machine's own loopback
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str, **query: Any) -> Any:
        return self._json("GET", path, query=query)

    def post(self, path: str, body: object = None) -> Any:
        return self._json("POST", path, body=body)

    def patch(self, path: str, body: object) -> Any:
        return self._json("PATCH", path, body=body)

    def delete(self, path: str, **query: Any) -> Any:
        return self._json("DELETE", path, query=query)

    def text(self, path: str, **query: Any) -> str:
        return self._send("GET", path, query=query).text

    def job_id(self, name: str) -> str:
        """The id of the job that `name` means: an id itself, or the key or name of exactly one job."""
        if _JOB_ID.fullmatch(name):
            return name
        for field in ("key", "name"):
            found = self.get("/v1/jobs", **{field: name}, limit=100)["items"]
            if found:
                return _only(found, field, name)
        raise NotFound("job with the id, key or name", repr(name))

    def _json(self, method: str, path: str, *, query: Mapping[str, Any] | None = None, body: object = None) -> Any:
        response = self._send(method, path, query=query, body=body)
        try:
            return response.json()
        except ValueError as exc:
            raise Unavailable(f"what answers at {self.url} is not Horae; check HORAE_URL") from exc

    def _send(
        self, method: str, path: str, *, query: Mapping[str, Any] | None = None, body: object = None
    ) -> httpx2.Response:
        params: list[tuple[str, Scalar]] = [
            (name, item) for name, value in (query or {}).items() for item in _items(value)
        ]
        try:
            response = self._http.request(method, path, params=params, json=body)
        except httpx2.TimeoutException as exc:
            raise Unavailable(f"Horae at {self.url} did not answer within {TIMEOUT_SECONDS:.0f} s") from exc
        except httpx2.TransportError as exc:
            raise Unavailable(f"cannot reach Horae at {self.url}; start it with `horae dev`, or set HORAE_URL") from exc
        if response.is_error:
            raise _refusal(response)
        return response


def run_id(name: str) -> str:
    """A run is named by its id alone."""
    if not _RUN_ID.fullmatch(name):
        raise NotFound("run", f"{name!r}; a run is named by its id (run_…), which `horae runs ls --job JOB` shows")
    return name


def _items(value: Any) -> list[Scalar]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _only(found: list[Document], field: str, name: str) -> str:
    unfinished = [job for job in found if job["status"] in UNFINISHED]
    candidates = unfinished or found
    if len(candidates) > 1:
        ids = ", ".join(job["id"] for job in candidates[:5])
        raise Conflict(f"{len(candidates)} jobs have the {field} {name!r}; say which by its id: {ids}")
    return str(candidates[0]["id"])


def _refusal(response: httpx2.Response) -> Refused:
    try:
        problem = response.json()
    except json.JSONDecodeError:
        problem = None
    if not isinstance(problem, dict):
        problem = {"detail": f"the server answered {response.status_code} {response.reason_phrase}"}
    return Refused({"status": response.status_code, **problem})
