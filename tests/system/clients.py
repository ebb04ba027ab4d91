"""Clients that create jobs continuously, whatever happens to the nodes, and record every call and its answer."""

import itertools
import random
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import httpx2

from horae.proof.checking import Recorder
from horae.proof.checking.history.records import Action, Definition, Fail, Info, Invoke, Ok
from tests.system.cluster import Cluster
from tests.system.faults import clock
from tests.system.rest import Document, run_of, timestamp

TIMEOUT_SECONDS = 5.0
BATCH = 40
CATCH_UP_SECONDS = 10.0  # what was not asked for while nobody answered is asked for then, up to this long
TRIES = 60  # of one call with an idempotency key, until its outcome is certain


class Clients(AbstractContextManager["Clients"]):
    """Three clients: one sends single jobs, one retries with an idempotency key until answered, one sends batches."""

    def __init__(self, cluster: Cluster, recorder: Recorder, *, seed: int, per_second: float) -> None:
        self._cluster = cluster
        self._recorder = recorder
        self._per_second = per_second
        self._stop = threading.Event()
        self._calls = itertools.count()
        self._failures: list[BaseException] = []
        self.recurring: dict[str, tuple[float, float]] = {}  # job → when it was accepted, and when it was paused
        self.accepted: dict[str, str] = {}  # label → job, of those for once
        self.unknown: set[str] = set()  # labels of jobs of which nobody knows whether they were created
        self.answered_at = 0.0  # when the last job was accepted
        acts: Sequence[tuple[Callable[[httpx2.Client, random.Random], None], float]] = (
            (self._single, per_second * 0.1),
            (self._certain, per_second * 0.1),
            (self._batch, per_second * 0.8 / BATCH),
        )
        self._threads = [
            threading.Thread(target=self._go_on, args=(act, rate, random.Random(f"{seed} {place}")), daemon=True)
            for place, (act, rate) in enumerate(acts)
        ]

    def __enter__(self) -> "Clients":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def create_recurring(self, count: int) -> None:
        """Create jobs that fire every second."""
        for place in range(count):
            label = f"cron-{place}"
            body = {"task": "effects.work", "schedule": "* * * * * *", "overlap": "allow", "params": {"label": label}}
            call = self._invoke(label, body, None)
            job = str(self._cluster.rest.post("/v1/jobs", body, status=201)["id"])
            self.recurring[job] = (accepted_at := clock()), float("inf")
            self._recorder.write(Ok(at=accepted_at, call=call, job=job))

    def pause_recurring(self) -> None:
        for job, (accepted_at, _) in list(self.recurring.items()):
            call = f"call-{next(self._calls)}"
            self.recurring[job] = accepted_at, (paused_at := clock())
            self._recorder.write(Invoke(at=paused_at, call=call, action=Action.PAUSE, job=job))
            self._cluster.rest.post(f"/v1/jobs/{job}/pause")
            self._recorder.write(Ok(at=clock(), call=call, job=job))

    def _go_on(
        self, act: Callable[[httpx2.Client, random.Random], None], per_second: float, rng: random.Random
    ) -> None:
        try:
            with httpx2.Client(timeout=TIMEOUT_SECONDS, trust_env=False) as client:
                next_at = clock()
                while not self._stop.wait(max(next_at - clock(), 0)):
                    act(client, rng)
                    next_at = max(next_at + 1 / per_second, clock() - CATCH_UP_SECONDS)
        except BaseException as exc:  # noqa: BLE001 - raised in the test when it leaves
            self._failures.append(exc)

    def _single(self, client: httpx2.Client, rng: random.Random) -> None:
        label = f"single-{next(self._calls)}"
        self._create(client, _job(label, rng), label)

    def _certain(self, client: httpx2.Client, rng: random.Random) -> None:
        label = f"certain-{next(self._calls)}"
        body = _job(label, rng)
        for _ in range(TRIES):
            if self._create(client, body, label, key=label):
                return
            if self._stop.wait(0.5):
                return

    def _create(self, client: httpx2.Client, body: Document, label: str, key: str | None = None) -> bool:
        """Send POST /v1/jobs; return whether it was accepted."""
        call = self._invoke(label, body, key)
        headers = {} if key is None else {"Idempotency-Key": key}
        response = self._post(client, "/v1/jobs", body, headers)
        if isinstance(response, str) or response.status_code >= 500:
            self._lost(call, label, response)
            return False
        if response.status_code != 201:
            assert key is not None and response.status_code == 409, response.text  # noqa: PT018 - its first try goes on
            self._recorder.write(Fail(at=clock(), call=call, code=409))
            return False
        self._accepted(call, label, response.json()["id"])
        return True

    def _batch(self, client: httpx2.Client, rng: random.Random) -> None:
        labels = [f"batch-{next(self._calls)}" for _ in range(BATCH)]
        jobs = [_job(label, rng) for label in labels]
        calls = [self._invoke(label, job, None) for label, job in zip(labels, jobs, strict=True)]
        response = self._post(client, "/v1/jobs/batch", {"jobs": jobs}, {})
        if isinstance(response, str) or response.status_code >= 500:
            for call, label in zip(calls, labels, strict=True):
                self._lost(call, label, response)
            return
        assert response.status_code == 200, response.text
        for call, label, item in zip(calls, labels, response.json()["items"], strict=True):
            if "id" in item:
                self._accepted(call, label, item["id"])
            else:
                assert item["error"]["status"] >= 500, item
                self._lost(call, label, str(item["error"]))

    def _post(self, client: httpx2.Client, path: str, body: Any, headers: dict[str, str]) -> "httpx2.Response | str":
        """Return the answer, or the record of a call that failed."""
        nodes = [server for server in self._cluster.of_role("api") if server.url]
        if not nodes:
            return "no API node is there"
        try:
            return client.post(f"{nodes[0].url}{path}", json=body, headers=headers)
        except httpx2.TransportError as exc:
            return repr(exc)

    def _invoke(self, label: str, body: Document, key: str | None) -> str:
        call = f"call-{next(self._calls)}"
        definition = Definition.of(body, label=label)
        self._recorder.write(
            Invoke(at=clock(), call=call, action=Action.CREATE, definition=definition, idempotency_key=key)
        )
        return call

    def _accepted(self, call: str, label: str, job: str) -> None:
        self.answered_at = at = clock()
        self._recorder.write(Ok(at=at, call=call, job=job, run=run_of(job)))
        earlier = self.accepted.setdefault(label, job)
        assert earlier == job, f"{label} was answered with {earlier} and with {job}"
        self.unknown.discard(label)

    def _lost(self, call: str, label: str, response: "httpx2.Response | str") -> None:
        problem = response if isinstance(response, str) else f"{response.status_code} {response.text[:200]}"
        self._recorder.write(Info(at=clock(), call=call, problem=problem))
        if label not in self.accepted:
            self.unknown.add(label)
        if not isinstance(response, str):
            assert response.status_code == 503, response.text
            assert "Retry-After" in response.headers, "a 503 says when to come again"


def _job(label: str, rng: random.Random) -> Document:
    """A job for now or a few seconds later; most are short, a few take seconds."""
    seconds = rng.uniform(2, 6) if rng.random() < 0.03 else rng.choice([0.0, 0.0, 0.05, 0.2])
    body: Document = {"task": "effects.work", "params": {"label": label, "seconds": round(seconds, 3)}}
    if rng.random() < 0.3:
        body["schedule"] = timestamp(clock() + rng.uniform(0.5, 5))
    return body
