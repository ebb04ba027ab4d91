"""A REST client for tests: answers as plain values, and errors that show the request and the answer."""

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import httpx2

from tests.system.waiting import eventually

Document = dict[str, Any]

FINAL = ("succeeded", "failed", "cancelled", "skipped")
TIMEOUT_SECONDS = 10.0
SHOWN_RUNS = 12


class Rest:
    """A client of any API node that answers; it repeats reads at other nodes, but not writes."""

    def __init__(self, urls: Callable[[], Sequence[str]]) -> None:
        self._urls = urls
        self._client = httpx2.Client(timeout=TIMEOUT_SECONDS, trust_env=False)
        self.jobs: list[str] = []  # that were created through it
        self.answered_at = 0.0  # when the last answer came

    def close(self) -> None:
        self._client.close()

    # --- the four verbs

    def get(self, path: str, **query: Any) -> Any:
        """Return the answer of the first node that gives one."""
        lost: httpx2.TransportError | None = None
        for url in self._urls():
            try:
                return self._answer("GET", url + path, params=query)
            except httpx2.TransportError as exc:
                lost = exc
        raise AssertionError(f"no API node answers GET {path}: {lost!r}")

    def post(self, path: str, body: object = None, *, status: int | None = None) -> Any:
        return self._answer("POST", self._urls()[0] + path, json=body if body is not None else {}, status=status)

    def patch(self, path: str, body: object) -> Any:
        return self._answer("PATCH", self._urls()[0] + path, json=body)

    def delete(self, path: str, **query: Any) -> Any:
        return self._answer("DELETE", self._urls()[0] + path, params=query)

    def _answer(self, method: str, url: str, *, status: int | None = None, **given: Any) -> Any:
        response = self._client.request(method, url, **given)
        self.answered_at = time.time()
        as_expected = response.is_success if status is None else response.status_code == status
        assert as_expected, f"{method} {url} {given} answered {response.status_code}: {response.text}"
        return response.json() if "json" in response.headers.get("content-type", "") else response.text

    # --- jobs

    def create(self, task: str, params: Document | None = None, **fields: Any) -> Document:
        """POST /v1/jobs."""
        job: Document = self.post("/v1/jobs", {"task": task, "params": params or {}, **fields}, status=201)
        self.jobs.append(job["id"])
        return job

    def create_many(self, jobs: Sequence[Document]) -> list[str]:
        """POST /v1/jobs/batch; every job must be accepted."""
        answer = self.post("/v1/jobs/batch", {"jobs": list(jobs)})
        assert answer["rejected"] == 0, [item for item in answer["items"] if "error" in item][:3]
        ids = [item["id"] for item in answer["items"]]
        self.jobs += ids
        return ids

    def job(self, job_id: str) -> Document:
        found: Document = self.get(f"/v1/jobs/{job_id}")
        return found

    def runs_of(self, job_id: str, **query: Any) -> list[Document]:
        """Every run of a job, latest first."""
        return list(self.pages(f"/v1/jobs/{job_id}/runs", query))

    def slots(self, job_id: str, **query: Any) -> list[Document]:
        """The ledger of a job, oldest first."""
        return list(self.pages(f"/v1/jobs/{job_id}/slots", query))

    def pages(self, path: str, query: Document) -> Iterator[Document]:
        cursor: Document = {}
        while True:
            page = self.get(path, limit=1000, **query, **cursor)
            yield from page["items"]
            if page["next_cursor"] is None:
                return
            cursor = {"cursor": page["next_cursor"]}

    # --- runs

    def run(self, run_id: str) -> Document:
        found: Document = self.get(f"/v1/runs/{run_id}")
        return found

    def run_of(self, job_id: str) -> Document:
        """The run of a one-shot job."""
        return self.run(run_of(job_id))

    def wait(self, run_id: str, *statuses: str, within: float) -> Document:
        """Wait for one of these statuses, or for any final one; return the run."""
        wanted = statuses or FINAL
        last: Document = {}

        def look() -> bool:
            nonlocal last
            last = self.run(run_id)
            return last["status"] in wanted

        try:
            eventually(look, f"{run_id} is {' or '.join(wanted)}", within=within)
        except AssertionError as exc:
            raise AssertionError(f"{exc}\nthe run: {last}") from None
        return last

    def wait_all(self, run_ids: Sequence[str], *, within: float) -> list[Document]:
        """Wait until all runs have ended, and return them."""
        deadline = time.monotonic() + within
        return [self.wait(run_id, within=max(deadline - time.monotonic(), 0.0)) for run_id in run_ids]

    # --- what happened

    def story(self) -> str:
        """The state of the jobs of this client, unfinished ones first, for error messages."""
        lines = [self._describe(job_id) for job_id in self.jobs[-200:]]
        lines.sort(key=lambda line: any(f" {status}" in line for status in ("succeeded", "finished")))
        left = len(lines) - SHOWN_RUNS
        return "\n".join([*lines[:SHOWN_RUNS], *([f"and {left} more"] if left > 0 else [])])

    def _describe(self, job_id: str) -> str:
        try:
            job = self.job(job_id)
            if job["schedule"]["type"] in ("now", "at"):
                run = self.run_of(job_id)
                tries = [(a["number"], a["outcome"], a["fence"]) for a in run["attempts"]]
                return f"{job_id} {run['status']} due {run['due_at']} attempts {tries} error {run['error']}"
            runs = [(run["slot"], run["status"], run["reason"]) for run in self.runs_of(job_id)[:5]]
            return f"{job_id} {job['status']} next {job['next_run_at']} last runs {runs}"
        except (AssertionError, httpx2.HTTPError) as exc:
            return f"{job_id} cannot be read: {exc}"


def run_of(job_id: str) -> str:
    """The run id of a one-shot, which has the digits of the job id."""
    return job_id.replace("job_", "run_", 1)


def instant(text: str) -> float:
    """Convert a timestamp of the API to seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


def timestamp(seconds: float) -> str:
    """Convert seconds since 1970 to a timestamp of the API."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
