"""Checks of cancel, pause, run-now and patch on live jobs, and of overlap and order."""

import time
from itertools import pairwise
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from tests.system.cluster import Cluster
from tests.system.effects import Effect
from tests.system.on_time import AT_ONCE, EARLIEST, LATEST
from tests.system.rest import Document, instant, run_of, timestamp
from tests.system.waiting import eventually, let_pass

NEVER_BY_ITSELF = "0 0 1 1 *"
EVERY_SECOND = "* * * * * *"
Fates = dict[float, tuple[str, str | None]]  # slot → outcome and reason

INSIDE_THE_LEAD = 0.7
CANCELLED_WITHIN = 2.0


# --- cancelling


def check_cancel_before_start(cluster: Cluster) -> None:
    """A cancelled run never starts: far ahead, near, and inside the lead; by its run and by its job."""
    now = time.time()
    rest = cluster.rest
    cancelled = []
    for by_job in (False, True):
        far, near, held = (
            rest.create("effects.work", schedule=timestamp(now + delay))["id"] for delay in (3600, 3, 2 + by_job)
        )
        for job_id in (far, near):
            assert _cancel(cluster, job_id, by_job=by_job)["status"] == "cancelled"
        let_pass(now + 2 + by_job - INSIDE_THE_LEAD - time.time())
        assert _cancel(cluster, held, by_job=by_job)["status"] == "cancelled"
        cancelled += [far, near, held]
    let_pass(now + 3.5 - time.time())
    for job_id in cancelled:
        assert not cluster.effects.starts(job_id), f"{job_id} was cancelled and started all the same"
        run = rest.run_of(job_id)
        assert (run["status"], run["started_at"], run["attempt"]) == ("cancelled", None, 0), run


def _cancel(cluster: Cluster, job_id: str, *, by_job: bool) -> Document:
    if by_job:
        cluster.rest.delete(f"/v1/jobs/{job_id}")
    else:
        cluster.rest.post(f"/v1/runs/{run_of(job_id)}/cancel")
    return cluster.rest.run_of(job_id)


def check_cancel_while_running(cluster: Cluster) -> dict[str, float]:
    """`cancelled` within 2 s, and nothing of it is left; answers how long each kind took."""
    took = {}
    for task in ("effects.work", "effects.thread", "effects.process"):
        job_id = cluster.rest.create(task, {"seconds": 60})["id"]
        [start] = eventually(lambda: cluster.effects.starts(job_id), f"{task} starts", within=15)  # noqa: B023
        took[task] = _cancelled_after(cluster, job_id)
        assert not cluster.effects.ends(job_id), f"{task} went on to its end"
        if task == "effects.process":
            _check_gone([start.pid])
    for name, script in _PROGRAMS.items():
        pids = cluster.folder / f"{name}-{time.time_ns()}.pids"
        job_id = cluster.rest.create("shell.run", {"command": ["sh", "-c", script, name, str(pids)]})["id"]
        family = eventually(lambda: _pids(pids), f"{name} starts", within=15)  # noqa: B023
        took[name] = _cancelled_after(cluster, job_id)
        _check_gone(family)
    return took


_PROGRAMS = {  # $1 is where to write the process ids
    "a program": 'echo $$ > "$1.new"; mv "$1.new" "$1"; exec sleep 60',
    "a program with a child": 'sleep 60 & echo $$ $! > "$1.new"; mv "$1.new" "$1"; wait',
    "a program that ignores TERM": 'trap "" TERM; echo $$ > "$1.new"; mv "$1.new" "$1"; while :; do sleep 0.1; done',
}


def _pids(file: Path) -> list[int]:
    return [int(word) for word in file.read_text().split()] if file.exists() else []


def _cancelled_after(cluster: Cluster, job_id: str) -> float:
    began = time.monotonic()
    answer = cluster.rest.post(f"/v1/runs/{run_of(job_id)}/cancel")
    assert answer["status"] in ("cancelled", "cancelling"), answer
    limit = CANCELLED_WITHIN * cluster.patience
    run = cluster.rest.wait(run_of(job_id), "cancelled", within=limit)
    took = time.monotonic() - began
    assert took <= limit, run
    assert [attempt["outcome"] for attempt in run["attempts"]] == ["cancelled"], run
    return took


def _check_gone(pids: list[int]) -> None:
    eventually(lambda: not any(map(_lives, pids)), f"the processes {pids} are gone", within=0.5)


def _lives(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


# --- pausing, running now, patching


def check_pause_and_resume(cluster: Cluster, *, pause: float) -> None:
    """A pause stops new runs, and `missed` decides about the slots that fell into it; every slot is accounted for."""
    rest = cluster.rest
    jobs = {missed: rest.create("effects.work", schedule=EVERY_SECOND)["id"] for missed in ("skip", "once", "all")}
    for job_id in jobs.values():
        eventually(lambda: cluster.effects.ends(job_id), "the job runs", within=5)  # noqa: B023
    paused_at, resumed_at = {}, {}
    _wait_for_a_quiet_moment()
    for missed, job_id in jobs.items():
        assert rest.post(f"/v1/jobs/{job_id}/pause")["status"] == "paused"
        paused_at[missed] = rest.answered_at
    let_pass(pause)
    for missed, job_id in jobs.items():
        late = [start for start in cluster.effects.starts(job_id) if start.due > paused_at[missed]]
        assert not late, f"started in the pause: {late}"
        assert rest.job(job_id)["next_run_at"] is None
    _wait_for_a_quiet_moment()
    for missed, job_id in jobs.items():
        assert rest.post(f"/v1/jobs/{job_id}/resume", {"missed": missed})["status"] == "scheduled"
        resumed_at[missed] = rest.answered_at
    until = max(resumed_at.values()) + 2
    for missed, job_id in jobs.items():
        eventually(
            lambda: any(end.due > until for end in cluster.effects.ends(job_id)),  # noqa: B023
            f"the job with missed {missed} goes on",
            within=15,
        )
        _check_missed(cluster, job_id, missed, paused_at[missed], resumed_at[missed])


def _wait_for_a_quiet_moment() -> None:
    """Wait for the middle of a second, so that no slot comes due while the requests are under way."""
    eventually(lambda: 0.2 < time.time() % 1 < 0.4, "it is the middle of a second", within=2)


def _check_missed(cluster: Cluster, job_id: str, missed: str, paused_at: float, resumed_at: float) -> None:
    slots = _single_slots(cluster, job_id)
    _check_whole(slots)
    inside = {slot: fate for slot, fate in slots.items() if paused_at < slot < resumed_at}
    ran = sorted(slot for slot, (outcome, _) in inside.items() if outcome == "ran")
    skipped = {fate for fate in inside.values() if fate[0] == "skipped"}
    started = {start.due for start in cluster.effects.starts(job_id)}
    assert set(ran) <= started, f"{missed}: the ledger says {ran} ran, the handlers saw {sorted(started)}"
    assert skipped <= {("skipped", "paused")}, slots
    match missed:
        case "skip":
            assert ran == []
        case "once":
            assert ran == [max(inside)], slots
        case "all":
            assert ran == sorted(inside), slots


def _single_slots(cluster: Cluster, job_id: str) -> Fates:
    """Each slot of a job that fires every second, with its outcome and reason; fails if one is listed twice."""
    fates: Fates = {}
    for entry in cluster.rest.slots(job_id):
        for place in range(entry["count"]):
            slot = instant(entry["from"]) + place
            assert slot not in fates, f"slot {timestamp(slot)} is in the ledger twice"
            fates[slot] = (entry["outcome"], entry["reason"])
    return fates


def _check_whole(slots: Fates) -> None:
    gaps = {later - sooner for sooner, later in pairwise(sorted(slots))}
    assert gaps == {1.0}, f"slots are missing: {sorted(slots)}"


def check_run_now(cluster: Cluster) -> None:
    """A manual run starts at once: while the job waits, is paused, is running, or is a one-shot that has ended."""
    rest = cluster.rest
    job_id = rest.create("effects.params", {"value": "its own"}, schedule=NEVER_BY_ITSELF)["id"]
    _check_manual(cluster, job_id, {}, "its own")
    _check_manual(cluster, job_id, {"params": {"value": "another"}}, "another")
    rest.post(f"/v1/jobs/{job_id}/pause")
    _check_manual(cluster, job_id, {}, "its own")
    assert rest.job(job_id)["status"] == "paused"

    one_shot = rest.create("effects.params", {"value": 1})["id"]
    rest.wait(run_of(one_shot), "succeeded", within=5)
    _check_manual(cluster, one_shot, {"params": {"value": 2}}, 2)

    busy = rest.create("effects.work", {"seconds": 1.5}, schedule=NEVER_BY_ITSELF)["id"]
    first, second = (rest.post(f"/v1/jobs/{busy}/run", status=202)["id"] for _ in range(2))
    rest.wait(second, "succeeded", within=10)  # a manual run is never skipped: it waits for its turn
    assert _spans_apart(cluster.effects.of(busy)), cluster.effects.of(busy)
    assert [start.run for start in cluster.effects.starts(busy)] == [first, second]

    parallel = rest.create("effects.work", {"seconds": 1.5}, schedule=NEVER_BY_ITSELF, overlap="allow")["id"]
    for _ in range(2):
        run = rest.post(f"/v1/jobs/{parallel}/run", status=202)
        answered_at = rest.answered_at
        [start] = eventually(lambda: cluster.effects.starts(run=run["id"]), "it starts", within=5)  # noqa: B023
        assert start.at - answered_at < AT_ONCE * cluster.patience, "a manual run of a job that may overlap waited"


def _check_manual(cluster: Cluster, job_id: str, body: Document, result: object) -> None:
    run = cluster.rest.post(f"/v1/jobs/{job_id}/run", body, status=202)
    answered_at = cluster.rest.answered_at
    ended = cluster.rest.wait(run["id"], "succeeded", within=5)
    assert (ended["trigger"], ended["result"]) == ("manual", result), ended
    [start] = cluster.effects.starts(run=run["id"])
    assert start.at - answered_at < AT_ONCE * cluster.patience, (
        f"started {start.at - answered_at:.3f} s after the answer"
    )


def check_patched_schedule(cluster: Cluster) -> None:
    """A patched schedule moves the next run: nearer, further, and for a job that runs once."""
    rest = cluster.rest
    job_id = rest.create("effects.work", schedule=NEVER_BY_ITSELF)["id"]
    patched = rest.patch(f"/v1/jobs/{job_id}", {"schedule": EVERY_SECOND})
    patched_at = rest.answered_at
    assert instant(patched["next_run_at"]) - patched_at < 1.1, patched
    eventually(lambda: len(cluster.effects.ends(job_id)) >= 2, "the nearer schedule is followed", within=5)
    starts = cluster.effects.starts(job_id)
    assert starts[0].due <= patched_at + 1
    assert all(EARLIEST <= start.lateness <= LATEST * cluster.patience for start in starts), starts

    patched = rest.patch(f"/v1/jobs/{job_id}", {"schedule": NEVER_BY_ITSELF})
    patched_at = rest.answered_at
    assert instant(patched["next_run_at"]) > patched_at + 1.5, patched

    once = rest.create("effects.work", schedule=timestamp(time.time() + 3600))["id"]
    sooner = time.time() + 1.5
    moved = rest.patch(f"/v1/jobs/{once}", {"schedule": timestamp(sooner)})
    assert abs(instant(moved["next_run_at"]) - sooner) < 0.001, moved
    rest.wait(run_of(once), "succeeded", within=5)
    [start] = cluster.effects.starts(once)
    assert EARLIEST <= start.at - sooner <= LATEST * cluster.patience, start
    stray = [start for start in cluster.effects.starts(job_id) if start.due > patched_at]
    assert not stray, f"the old schedule went on after the patch: {stray}"


# --- overlap and order


def check_overlap(cluster: Cluster, *, seconds: int) -> None:
    """`skip` leaves skipped slots with their reason; `buffer_one` runs one afterwards; `allow` runs them all."""
    rest = cluster.rest
    jobs = {
        overlap: rest.create("effects.work", {"seconds": 1.4}, schedule=EVERY_SECOND, overlap=overlap)["id"]
        for overlap in ("skip", "buffer_one", "allow")
    }
    ends_at = time.time() + seconds
    let_pass(seconds)
    for job_id in jobs.values():
        rest.post(f"/v1/jobs/{job_id}/pause")
    slots, spans = {}, {}
    for overlap, job_id in jobs.items():
        eventually(lambda: not _unfinished(cluster, job_id), "the last run ends", within=10)  # noqa: B023
        slots[overlap] = {s: fate for s, fate in _single_slots(cluster, job_id).items() if s < ends_at - 1}
        spans[overlap] = [effect for effect in cluster.effects.of(job_id) if effect.due < ends_at - 1]
        _check_whole(slots[overlap])
    _check_skip(slots["skip"], spans["skip"], LATEST * cluster.patience)
    _check_buffer_one(slots["buffer_one"], spans["buffer_one"], AT_ONCE * cluster.patience)
    assert set(slots["allow"].values()) == {("ran", None)}, slots["allow"]


def _unfinished(cluster: Cluster, job_id: str) -> list[Document]:
    return [run for run in cluster.rest.runs_of(job_id) if run["status"] in ("running", "queued", "retrying")]


def _check_skip(slots: Fates, notes: list[Effect], latest: float) -> None:
    assert set(slots.values()) == {("ran", None), ("skipped", "overlap")}, slots
    assert _spans_apart(notes), notes
    starts = [note for note in notes if note.event == "START"]
    assert all(start.lateness <= latest for start in starts), "a run that was not skipped started late"


def _check_buffer_one(slots: Fates, notes: list[Effect], latest: float) -> None:
    assert set(slots.values()) <= {("ran", None), ("skipped", "overlap")}, slots
    assert _spans_apart(notes), notes
    ends = [note for note in notes if note.event == "END"]
    starts = [note for note in notes if note.event == "START"]
    waits = [start.at - end.at for end, start in zip(ends, starts[1:], strict=False)]
    assert waits, "nothing was buffered"
    assert max(waits) <= latest, f"a buffered run started late after the one before: {waits}"


def _spans_apart(notes: list[Effect]) -> bool:
    """Whether no start comes before the end of the one before it."""
    events = [note.event for note in sorted(notes, key=lambda note: note.at)]
    return events == ["START", "END"] * (len(events) // 2) + ["START"] * (len(events) % 2)


def check_order(cluster: Cluster, *, keys: int, runs: int, seconds: float) -> int:
    """Runs of one key start one after another in the order of creation, whatever fails; answers how many processes."""
    retry = {"initial_seconds": 0.3, "factor": 1, "jitter": False}
    jobs = [
        {
            "task": "effects.flaky",
            "params": {"failures": int(place % 4 == 1), "seconds": seconds, "label": f"{key}:{place:04}"},
            "ordering_key": f"key-{key}",
            "retry": retry,
        }
        for place in range(runs)
        for key in range(keys)
    ]
    ids = cluster.rest.create_many(jobs)
    for run in cluster.rest.wait_all([run_of(job_id) for job_id in ids], within=60):
        assert run["status"] == "succeeded", run
    mine = set(ids)
    notes = [effect for effect in cluster.effects.all() if effect.job in mine]
    for key in range(keys):
        line = [effect for effect in notes if effect.label.startswith(f"{key}:")]
        labels = [effect.label for effect in line if effect.event == "START"]
        assert labels == sorted(labels), f"out of order: {labels}"
        assert len(labels) == runs + sum(place % 4 == 1 for place in range(runs)), labels
        assert _spans_apart(line), line
    return len({effect.pid for effect in notes})
