"""The same calls on a small cluster with right clocks, and with the wall clock of one node an hour wrong."""

import asyncio
import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import httpx2

from horae.proof.checking import Recorder, Recording, Violation, judge_recording, read_lines
from horae.proof.checking.history.records import Action, Definition, Effect, Invoke, Ok, Setup
from tests.live import HORAE
from tests.system import effects
from tests.system.cluster import Cluster
from tests.system.faults import clock
from tests.system.fleet import Fleet, Member, open_fleet
from tests.system.history_lines import effect_line, final_lines
from tests.system.rest import Document, run_of, timestamp
from tests.system.waiting import eventually, let_pass

ROLES = ("api", "planner", "worker")
HOUR = 3600
SLOTS_SECONDS = 5  # for which there are slots
NEAR_SECONDS = 10.0  # the accuracy of a reported error: libfaketime uses whole seconds
REPORT_SECONDS = 15.0
METRIC = re.compile(r'^horae_node_wall_clock_offset_seconds\{node="[^"]*:(\d+)"\} (\S+)$', re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Skew:
    """Which node has a wrong wall clock, by how many hours, and from when on."""

    role: str
    hours: int
    from_start: bool

    def __str__(self) -> str:
        return f"{self.role} {self.hours:+d} h {'before its start' if self.from_start else 'while it runs'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """A recorded history and its verdict."""

    recording: Recording
    violations: list[Violation]


def lived(folder: Path, skew: Skew | None) -> Life:
    """Run the calls once; a wrong clock must be reported by metric, log and doctor."""
    history = folder / "history.jsonl"
    with (
        open_fleet(folder, (), HORAE_HEARTBEAT_SECONDS="1") as fleet,
        Recorder(history) as recorder,
    ):
        for role in ROLES:
            early = skew is not None and skew.from_start and skew.role == role
            fleet.start(role, wrong_by=skew.hours * HOUR if early and skew is not None else 0)
        recorder.write(Setup(at=clock()))
        calls = Calls(fleet.cluster, recorder)
        for label, body in _first_half():
            calls.create(label, body)
        let_pass(1)
        if skew is not None and not skew.from_start:
            fleet.of(skew.role)[0].clock.jump(skew.hours * HOUR)
            let_pass(1.5)  # the library looks for its error once a second
        for label, body in _second_half():
            calls.create(label, body)
        if skew is not None:
            _check_reports(fleet, fleet.of(skew.role)[0], skew)
        calls.await_ends()
        calls.delete("far")
        recorder.write(*map(_effect, fleet.cluster.effects.all()), *asyncio.run(final_lines(fleet.postgres.url)))
    recording = Recording(read_lines(history))
    return Life(recording=recording, violations=list(judge_recording(recording).violations))


# --- what is asked for


def _first_half() -> Iterator[tuple[str, Document]]:
    """Requests that a wrong clock could affect: due times, slots, delays, time limits and order."""
    ends_at = timestamp(int(time.time()) + SLOTS_SECONDS + 0.5)
    for overlap in ("allow", "skip"):
        schedule = {"type": "cron", "expression": "* * * * * *", "ends_at": ends_at}
        yield f"slots-{overlap}", _job(schedule=schedule, overlap=overlap, misfire="all")
    yield "far", _job(schedule=timestamp(time.time() + HOUR / 2))  # which is past for a clock that is an hour ahead
    yield "long", _job(seconds=4, timeout_seconds=60)
    yield "flaky", {**_job(retry={"initial_seconds": 2, "jitter": False}), "task": "effects.flaky"}
    for place in range(4):
        yield f"key-{place}", _job(seconds=0.3, ordering_key="k")


def _second_half() -> Iterator[tuple[str, Document]]:
    for place in range(10):
        yield f"now-{place}", _job()
        yield f"soon-{place}", _job(schedule=timestamp(time.time() + 1 + place / 10))
    yield "within", _job(start_within_seconds=600)
    hopeless = {"max_retries": 1, "retry": {"initial_seconds": 1, "jitter": False}}
    yield "hopeless", {**_job(failures=9, **hopeless), "task": "effects.flaky"}


def _job(*, seconds: float = 0.0, failures: int | None = None, **fields: object) -> Document:
    params: Document = {"seconds": seconds} | ({} if failures is None else {"failures": failures})
    return {"task": "effects.work", "params": params, **fields}


class Calls:
    """A client that records its calls and answers."""

    def __init__(self, cluster: Cluster, recorder: Recorder) -> None:
        self._cluster = cluster
        self._recorder = recorder
        self._numbers = count()
        self._jobs: dict[str, str] = {}  # label → id
        self._recurring: set[str] = set()

    def create(self, label: str, body: Document) -> None:
        body["params"]["label"] = label
        definition = Definition.of(body, label=label)
        job = self._ask(
            Action.CREATE,
            lambda: self._cluster.rest.post("/v1/jobs", body, status=201),
            definition=definition,
            once=not isinstance(body.get("schedule"), dict),
        )
        self._jobs[label] = job["id"]
        if isinstance(body.get("schedule"), dict):
            self._recurring.add(label)

    def delete(self, label: str) -> None:
        job = self._jobs[label]
        self._ask(Action.DELETE, lambda: self._cluster.rest.delete(f"/v1/jobs/{job}"), job=job)

    def await_ends(self) -> None:
        """Wait until every due run has ended."""
        for label, job in self._jobs.items():
            if label in self._recurring:
                eventually(lambda: self._over(job), f"{label} has had its slots", within=60)  # noqa: B023
            elif label != "far":
                self._cluster.rest.wait(run_of(job), within=60)

    def _over(self, job: str) -> bool:
        runs = self._cluster.rest.runs_of(job)
        ended = [run["status"] in ("succeeded", "failed", "skipped", "cancelled") for run in runs]
        return self._cluster.rest.job(job)["status"] == "finished" and all(ended)

    def _ask(
        self,
        action: Action,
        act: Callable[[], Document],
        *,
        job: str | None = None,
        definition: Definition | None = None,
        once: bool = False,
    ) -> Document:
        call = f"call-{next(self._numbers)}"
        self._recorder.write(Invoke(at=clock(), call=call, action=action, job=job, definition=definition))
        job = act()
        run = run_of(job["id"]) if once else None
        self._recorder.write(Ok(at=clock(), call=call, job=job["id"], run=run, schedule=job["schedule"]))
        return job


# --- reports of a wrong clock


def _check_reports(fleet: Fleet, member: Member, skew: Skew) -> None:
    wrong_by = skew.hours * HOUR
    assert member.clock.is_of(member.server.pid), "the fault never took effect"

    def told_by_metric() -> bool:
        offsets = _offsets(fleet)
        mine = offsets.pop(member.server.pid, 0.0)
        return abs(mine - wrong_by) < NEAR_SECONDS and all(abs(other) < NEAR_SECONDS for other in offsets.values())

    eventually(told_by_metric, f"the metric tells of {skew}", within=REPORT_SECONDS)
    lines = [json.loads(line) for line in member.server.output().splitlines() if line.startswith("{")]
    logged = [line["ahead_seconds"] for line in lines if line["event"] == "wall_clock_wrong"]
    assert logged, member.server.tail()
    assert abs(logged[-1] - wrong_by) < NEAR_SECONDS, logged
    side = "ahead of" if wrong_by > 0 else "behind"
    [finding] = [each for each in _doctor(fleet) if each["check"].startswith("node ")]
    assert finding["check"].endswith(f":{member.server.pid}"), finding
    assert f" s {side} the store's" in finding["detail"], finding


def _offsets(fleet: Fleet) -> dict[int, float]:
    """How far the clock of each process is ahead."""
    text = httpx2.get(f"{fleet.of('api')[0].server.url}/metrics", timeout=30, trust_env=False).text
    return {int(pid): float(value) for pid, value in METRIC.findall(text)}


def _doctor(fleet: Fleet) -> list[Document]:
    """The findings of `horae doctor` on a machine with a right clock."""
    done = subprocess.run(
        [HORAE, "doctor", "-o", "json"], env=fleet.cluster.environment, capture_output=True, text=True, check=False
    )
    findings: list[Document] = json.loads(done.stdout)["findings"]
    return findings


# --- what came of it


def _effect(note: effects.Effect) -> Effect:
    failures = {"flaky": 1, "hopeless": 9}.get(note.label, 0)
    return effect_line(note, good=note.attempt > failures)
