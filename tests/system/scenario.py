"""One scenario over REST that every combination of store, queue and blobs goes through.

Jobs for now and for later, every second, retries, cancels, pauses, order per key, overlap, dead letters, logs, and a
node that is killed and comes back.
"""

import time
from functools import partial

from tests.system import control, on_time, retrying
from tests.system.cluster import Cluster, Server
from tests.system.control import EVERY_SECOND
from tests.system.rest import instant, run_of, timestamp
from tests.system.waiting import eventually

RESTARTED_WITHIN = 20.0


def run_scenario(cluster: Cluster) -> None:
    """Do everything on one node: side by side what mostly waits, and then the restart."""
    node = cluster.node()
    cluster.at_once(
        partial(on_time.check_jobs_for_now, times=3),
        partial(on_time.check_jobs_for_later, delay=1.2, times=3),
        partial(on_time.check_every_second, seconds=2),
        partial(retrying.check_exact_delays, initial=0.3),
        check_cancels,
        partial(control.check_pause_and_resume, pause=1.2),
        partial(control.check_order, keys=4, runs=4, seconds=0.02),
        partial(control.check_overlap, seconds=4),
        check_dead_letters,
        check_logs_and_large_payloads,
    )
    check_restart(cluster, node)


def check_cancels(cluster: Cluster) -> None:
    """Cancel a run that waits, one that is inside the lead, and one that is running: none of them goes on."""
    rest = cluster.rest
    running = rest.create("effects.work", {"seconds": 60})["id"]
    far = rest.create("effects.work", schedule=timestamp(time.time() + 3600))["id"]
    near = rest.create("effects.work", schedule=timestamp(time.time() + 0.8))["id"]
    rest.delete(f"/v1/jobs/{far}")
    rest.post(f"/v1/runs/{run_of(near)}/cancel")
    eventually(lambda: cluster.effects.starts(running), "the run starts", within=5)
    rest.post(f"/v1/runs/{run_of(running)}/cancel")
    for job_id in (running, far, near):
        rest.wait(run_of(job_id), "cancelled", within=control.CANCELLED_WITHIN * cluster.patience)
    eventually(lambda: time.time() > instant(rest.run_of(near)["due_at"]) + 0.3, "its time has come", within=3)
    assert not cluster.effects.starts(near)
    assert not cluster.effects.starts(far)
    assert not cluster.effects.ends(running)


def check_dead_letters(cluster: Cluster) -> None:
    """A run that failed for good is a dead letter until it is sent again as a new run."""
    rest = cluster.rest
    failed = rest.wait(run_of(rest.create("demo.fail", {"times": 1}, max_retries=0)["id"]), "failed", within=5)

    def is_letter() -> bool:
        return failed["id"] in [each["id"] for each in rest.get("/v1/dead-letters", job_id=failed["job_id"])["items"]]

    eventually(is_letter, "it is a dead letter", within=5)
    answer = rest.post("/v1/dead-letters/requeue", {"ids": [failed["id"]]})
    assert answer["done"] == 1, answer
    eventually(lambda: not is_letter(), "it is resolved", within=5)
    again = rest.run(failed["id"])["resolution"]
    assert rest.run(again)["requeue_of"] == failed["id"]
    rest.wait(again, "failed", within=5)


def check_logs_and_large_payloads(cluster: Cluster) -> None:
    """What a program writes can be read back, and so can a result that is kept apart from its run."""
    rest = cluster.rest
    shell = rest.create("shell.run", {"command": ["echo", "what the program says"]})["id"]
    rest.wait(run_of(shell), "succeeded", within=10)
    logs = f"/v1/runs/{run_of(shell)}/logs"
    eventually(lambda: "what the program says" in str(rest.get(logs)), "the log is there", within=5)
    large = "x" * 100_000
    job = rest.create("effects.params", {"value": large})["id"]
    assert rest.wait(run_of(job), "succeeded", within=10)["result"] == large


def check_restart(cluster: Cluster, node: Server) -> None:
    """A node that is killed loses nothing: what ran starts again, what was due meanwhile runs late, slots are whole."""
    rest = cluster.rest
    every_second = rest.create("effects.work", schedule=EVERY_SECOND, overlap="allow", misfire="all")["id"]
    interrupted = rest.create("effects.work", {"seconds": 1.5})["id"]
    meanwhile = rest.create("effects.work", schedule=timestamp(time.time() + 1.5))["id"]
    rest.wait(run_of(interrupted), "running", within=5)
    node.kill()
    successor = cluster.node()
    for job_id in (interrupted, meanwhile):
        run = rest.wait(run_of(job_id), within=RESTARTED_WITHIN)
        assert (run["status"], run["attempt"]) == ("succeeded", 1), run
    assert [each["outcome"] for each in rest.run_of(interrupted)["attempts"]] == ["lost", "succeeded"], interrupted
    resumed_at = time.time()
    eventually(
        lambda: any(end.due > resumed_at for end in cluster.effects.ends(every_second)),
        "the job of every second goes on",
        within=RESTARTED_WITHIN,
    )
    _wait_until_whole(cluster, every_second)
    assert not cluster.effects.doubled(every_second)
    assert successor.alive


def _wait_until_whole(cluster: Cluster, job_id: str) -> None:
    """Every slot up to a pause has run once."""
    cluster.rest.post(f"/v1/jobs/{job_id}/pause")
    paused_at = cluster.rest.answered_at

    def slots() -> dict[float, str]:
        shown = cluster.rest.slots(job_id, end=timestamp(int(paused_at) - 1))
        return {instant(slot["from"]): slot["outcome"] for slot in shown for _ in range(slot["count"])}

    eventually(lambda: "pending" not in slots().values(), "no slot is pending", within=RESTARTED_WITHIN)
    found = slots()
    assert set(found.values()) == {"ran"}, found
    assert len(found) == max(found) - min(found) + 1, found
