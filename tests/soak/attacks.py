"""The hostile part of `make soak`: one owner attacks two nodes, which are killed now and then, and another works on.

Run as `python -m tests.soak.attacks [--minutes 8] [--seed N]`; exits with 1 when the other owner was held up.
"""

import argparse
import os
import random
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import httpx2

from tests.soak.red_list import RedList, answering
from tests.soak.signals import exit_on_signal
from tests.system.cluster import Cluster, Server
from tests.system.neighbours import AUTH, client
from tests.system.on_time import percentile
from tests.system.postgres import OwnPostgres
from tests.system.rest import Document, instant
from tests.system.waiting import eventually

NICENESS = 5  # the chaos beside it is judged by how soon it recovers
KILL_SECONDS = (15.0, 30.0)  # between two kills
# What the other owner may feel, on a machine that is busy with the rest of the soak and whose nodes are killed:
USUAL_SECONDS = 1.0  # lateness of half of its runs
LATEST_SECONDS = 45.0  # lateness of any run: a dead node is noticed after 15 s
SILENCE_SECONDS = 30.0  # between two answers to its requests
RAN = 0.9  # of its slots; the others may be skipped because they were missed
SHOWN = 20


@dataclass
class Victim:
    """The other owner: a job every second, and requests all the while."""

    cluster: Cluster
    job: str = ""
    silences: list[float] = field(default_factory=list)  # seconds between two answers
    answered_at: float = field(default_factory=time.monotonic)

    def begin(self) -> None:
        body = {"task": "demo.echo", "schedule": "* * * * * *", "overlap": "allow"}
        self.job = str(self._ask(lambda owner: owner.post("/v1/jobs", json=body))["id"])

    def ask(self) -> None:
        """Read the job at any node; note how long no request was answered."""
        try:
            self._ask(lambda owner: owner.get(f"/v1/jobs/{self.job}/status"))
        except (httpx2.TransportError, AssertionError):
            return
        now = time.monotonic()
        self.silences.append(now - self.answered_at)
        self.answered_at = now

    def end(self) -> list[Document]:
        """Pause the job and return its slots, without the last ones if they had not begun by then."""
        paused_at = time.time()
        self._ask(lambda owner: owner.post(f"/v1/jobs/{self.job}/pause"))
        eventually(lambda: not self._slots("pending"), "no slot is pending", within=60)
        slots = self._slots("ran", "skipped")
        return [
            slot for slot in slots if slot["reason"] != "paused" or instant(slot["from"]) < paused_at - LATEST_SECONDS
        ]

    def latenesses(self) -> list[float]:
        """How late each run was, in seconds."""
        runs = self._pages(f"/v1/jobs/{self.job}/runs")
        return [run["lateness_ms"] / 1000 for run in runs if run["lateness_ms"] is not None]

    def _slots(self, *outcomes: str) -> list[Document]:
        return [slot for slot in self._pages(f"/v1/jobs/{self.job}/slots") if slot["outcome"] in outcomes]

    def _pages(self, path: str) -> Iterator[Document]:
        cursor: dict[str, str] = {}
        while True:
            query = {"limit": "1000", **cursor}
            page = self._ask(lambda owner: owner.get(path, params=query))  # noqa: B023
            yield from page["items"]
            if page["next_cursor"] is None:
                return
            cursor = {"cursor": page["next_cursor"]}

    def _ask(self, request: Callable[[httpx2.Client], httpx2.Response]) -> Document:
        """The answer of the first node that gives one."""
        lost: object = "no node is alive"
        for node in self.cluster.of_role("api"):
            with client(node, "other") as owner:
                owner.timeout = httpx2.Timeout(5.0)
                try:
                    response = request(owner)
                except httpx2.TransportError as exc:
                    lost = exc
                    continue
                if response.is_success:
                    answer: Document = response.json()
                    return answer
                lost = f"{response.status_code} {response.text[:200]}"
        raise AssertionError(f"the other owner got no answer: {lost}")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--minutes", type=float, default=8.0)
    options.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    given = options.parse_args()
    exit_on_signal()
    os.nice(NICENESS)
    folder = Path(tempfile.mkdtemp(prefix="horae-attacks-"))
    try:
        wrong = soak(folder, seconds=given.minutes * 60, seed=given.seed)
    finally:
        shutil.rmtree(folder)
    for line in wrong[:SHOWN]:
        print(f"WRONG: {line}")
    print(f"attacks: {'nothing' if not wrong else len(wrong)} wrong, seed {given.seed}")
    return 1 if wrong else 0


def soak(folder: Path, *, seconds: float, seed: int) -> list[str]:
    """Attack for a while; return all that was wrong."""
    print(f"attacks: {seconds / 60:g} minutes, seed {seed}", flush=True)
    rng, wrong = random.Random(seed), list[str]()
    with _nodes(folder) as cluster, answering() as port:
        victim = Victim(cluster)
        victim.begin()
        with RedList(lambda: cluster.of_role("api"), port, seed) as red_list:
            kills = _go_on(cluster, victim, rng, until=time.monotonic() + seconds)
        wrong += [
            f"{attack.__name__} never reached a node"
            for attack in red_list.attacks
            if not red_list.done[attack.__name__]
        ]
        cluster.ready(*[_started(cluster) for _ in range(2 - len(cluster.of_role("api")))])
        wrong += _judge(victim, seconds)
        print(f"attacks: {kills} kills; {dict(red_list.done)}", flush=True)
        cluster.close()
        cluster.check()
    return wrong


@contextmanager
def _nodes(folder: Path) -> Iterator[Cluster]:
    """Two nodes with every role on a PostgreSQL of their own."""
    settings = {**AUTH, "HORAE_ENCRYPTION_KEY": secrets.token_urlsafe(32), "HORAE_HTTP_ALLOW": "127.0.0.1"}
    with OwnPostgres() as postgres, Cluster(folder, postgres.url, **settings) as cluster:
        cluster.migrate()
        cluster.ready(*[_started(cluster) for _ in range(2)])
        yield cluster


def _started(cluster: Cluster) -> Server:
    return cluster.node(wait=False)


def _go_on(cluster: Cluster, victim: Victim, rng: random.Random, *, until: float) -> int:
    """Ask for the other owner, and kill a node now and then; return how many were killed."""
    kills, kill_at = 0, time.monotonic() + rng.uniform(*KILL_SECONDS)
    while time.monotonic() < until:
        victim.ask()
        time.sleep(0.2)
        if time.monotonic() > kill_at:
            rng.choice(cluster.of_role("api")).kill()
            _started(cluster)
            kills, kill_at = kills + 1, time.monotonic() + rng.uniform(*KILL_SECONDS)
    return kills


def _judge(victim: Victim, seconds: float) -> list[str]:
    """What the other owner has to complain about."""
    slots = victim.end()
    ran = sum(slot["count"] for slot in slots if slot["outcome"] == "ran")
    total = sum(slot["count"] for slot in slots)
    late = victim.latenesses()
    p50, latest, silence = percentile(late, 50), max(late), max(victim.silences)
    print(
        f"attacks: the other owner: {ran} of {total} slots ran, late p50 {p50 * 1000:.0f} ms, max {latest:.1f} s;"
        f" {len(victim.silences)} answers, the longest silence {silence:.1f} s",
        flush=True,
    )
    wrong = []
    if total < seconds - LATEST_SECONDS or ran < RAN * total:
        wrong.append(f"only {ran} of {total} slots of the other owner ran in {seconds:.0f} s")
    if p50 > USUAL_SECONDS or latest > LATEST_SECONDS:
        wrong.append(f"runs of the other owner were late: p50 {p50:.1f} s, max {latest:.1f} s")
    if silence > SILENCE_SECONDS:
        wrong.append(f"the other owner got no answer for {silence:.1f} s")
    reasons = {slot["reason"] for slot in slots if slot["outcome"] == "skipped"}
    if reasons - {"misfire"}:
        wrong.append(f"slots of the other owner were skipped because of {sorted(reasons)}")
    return wrong + _gaps(slots)


def _gaps(slots: list[Document]) -> list[str]:
    """Seconds that the ledger does not account for, or twice."""
    ordered = sorted(slots, key=lambda slot: instant(slot["from"]))
    wrong = []
    for before, after in pairwise(ordered):
        if instant(after["from"]) - instant(before["to"]) != 1:
            wrong.append(f"between the slots {before['to']} and {after['from']} is not one second")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
