"""Issue 5, part 4: hostile handlers and clients.

The node survives, other jobs stay on time, and the outcome of each attack is recorded.
"""

import time
from pathlib import Path

import httpx2
import pytest

from horae.core.decisions.results import APART
from tests.acceptance.conftest import ReportFigure
from tests.system.abuse import (
    SUCCEEDED,
    Attack,
    Siege,
    descendants_gone,
    endure,
    good_requests,
    hostile_node,
    judge_neighbour,
    memory_of,
    neighbour,
    summary,
)
from tests.system.cluster import Cluster
from tests.system.fixtures import QUICK, OpenCluster
from tests.system.on_time import percentile
from tests.system.rest import run_of, timestamp
from tests.system.waiting import eventually, let_pass

pytestmark = pytest.mark.acceptance

LATEST = 0.5  # seconds that a neighbour may be late beside whatever two cores are kept busy with
# Four workers shared with a poison pill: each is buried and replaced within six seconds, and from the second on whoever
# was there waits to come back apart.
SUSPECTED = 4 * 6 + (1 + 2 + 3) * APART.total_seconds()
MEGABYTES = 400
YES = ["sh", "-c", "yes $(head -c 5000 /dev/zero | tr '\\0' y)"]

THAT_LEAVE = (
    Attack(task="hostile.exit_async", error="SystemExit"),
    Attack(task="hostile.exit_within", error="SystemExit", says="from within"),
    Attack(task="hostile.stop_loop", error=SUCCEEDED, says="it went on"),
    Attack(task="hostile.exit_thread", error="SystemExit"),
    Attack(task="hostile.kill_process", error="crash", says="signal 9"),
    Attack(task="hostile.segfault", error="crash", says="signal 11"),
    Attack(task="hostile.fork_thread", error=SUCCEEDED, says="parent"),
    Attack(task="hostile.generator_exit", error="GeneratorExit"),
    Attack(task="hostile.retry_never", error="RetryAfter", says="inf"),
    Attack(task="hostile.unprintable", error="Unprintable", says="cannot be printed"),
    Attack(task="shell.run", error="ExitCode", says="signal 9", params={"command": ["sh", "-c", "kill -9 $$"]}),
    Attack(task="shell.run", error="Fatal", says="cannot run", params={"command": ["/no/such/program"]}),
)
THAT_TAKE = (
    Attack(task="hostile.recurse_thread", error="RecursionError"),
    Attack(task="hostile.recurse_process", error="RecursionError"),
    Attack(task="hostile.eat_memory", error="MemoryError", params={"megabytes": 600}),
    Attack(task="hostile.eat_files", error="OSError", says="Too many open files"),
    Attack(task="hostile.flood_thread", error=SUCCEEDED, params={"lines": 20_000}, truncated=True),
    Attack(task="hostile.flood_process", error=SUCCEEDED, params={"lines": 20_000}, truncated=True),
    Attack(task="hostile.large_result", error="InvalidResult", says="bytes of JSON", params={"megabytes": 20}),
    Attack(task="hostile.deep_result", error="InvalidResult", params={"depth": 100_000}),
    Attack(task="shell.run", error="timeout", params={"command": YES}, timeout=3, truncated=True),
    Attack(task="shell.run", error="timeout", params={"command": ["sh", "-c", "cat /dev/zero"]}, timeout=3),
    Attack(
        task="shell.run",  # as many programs as it can start in two seconds, all of one group
        error="timeout",
        params={
            "command": ["sh", "-c", "trap '' TERM; while :; do sleep 100 & i=$((i+1)); [ $i -gt 200 ] && wait; done"]
        },
        timeout=2,
    ),
)
THAT_STAY = (
    Attack(task="hostile.deaf_async", error="timeout", timeout=1),
    Attack(task="hostile.deaf_thread", error="timeout", timeout=1),
    Attack(task="shell.run", error="timeout", params={"command": ["sh", "-c", "trap '' TERM; sleep 60"]}, timeout=1),
    Attack(task="hostile.spin_thread", error="timeout", params={"seconds": 6}, timeout=3),
)


@pytest.mark.parametrize("attacks", [THAT_LEAVE, THAT_TAKE, THAT_STAY], ids=["leave", "take", "stay"])
def test_a_hostile_handler_costs_its_neighbours_nothing(
    new_cluster: OpenCluster, kind: str, attacks: tuple[Attack, ...], report_figure: ReportFigure
) -> None:
    cluster = new_cluster(kind)
    node = hostile_node(cluster)
    latenesses = endure(cluster, attacks, latest=LATEST)
    held = memory_of(node)
    report_figure(f"{len(attacks)} attacks, {summary(latenesses)}, {held:.0f} MB")
    assert held < MEGABYTES
    assert cluster.rest.get("/readyz")


def test_a_deaf_process_is_killed_with_its_children(new_cluster: OpenCluster, report_figure: ReportFigure) -> None:
    cluster = new_cluster("sqlite")
    hostile_node(cluster)
    with neighbour(cluster) as job:
        deaf = cluster.rest.create("hostile.deaf_process", timeout_seconds=2, max_retries=0)
        run = cluster.rest.wait(run_of(deaf["id"]), within=20)
        assert run["error"]["type"] == "timeout"
        eventually(lambda: descendants_gone(cluster, deaf["id"]), "the process and its child are gone", within=5)
    report_figure(summary(judge_neighbour(cluster, job, latest=LATEST)))


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_handler_that_keeps_the_event_loop_to_itself_costs_others_its_lease(
    new_cluster: OpenCluster, store: str, report_figure: ReportFigure, tmp_path: Path
) -> None:
    """The other node takes over what the blocked one held and planned."""
    cluster = new_cluster(store, **QUICK)
    nodes = [hostile_node(cluster, wait=False), hostile_node(cluster, wait=False)]
    cluster.ready(*nodes)
    with neighbour(cluster) as job:
        soon = timestamp(time.time() + 1)  # when nobody waits for an answer of the node any more
        once = str(tmp_path / "once")
        blocker = cluster.rest.create("hostile.block_loop", {"seconds": 8, "once": once}, schedule=soon)
        eventually(lambda: cluster.effects.starts(blocker["id"]), "the loop of a node is blocked", within=5)
        [start] = cluster.effects.starts(blocker["id"])
        [blocked] = [node for node in nodes if node.pid == start.pid]
        [other] = [node for node in nodes if node is not blocked]
        let_pass(4)  # twice the silence after which it is declared dead
        assert "event_loop_stalled" in blocked.output(), blocked.tail()
        assert "hostile_tasks.py" in blocked.output()
        assert "node_declared_dead" in other.output(), other.tail()
        since = len(cluster.effects.starts(job))
        let_pass(3)
        assert len(cluster.effects.starts(job)) >= since + 2  # on time again, while the first still stands still
        eventually(
            lambda: httpx2.get(f"{blocked.url}/readyz", timeout=30, trust_env=False).is_success,
            "the blocked node is back",
            within=20,
        )
        run = cluster.rest.wait(run_of(blocker["id"]), within=20)
    assert (run["status"], run["result"], run["crashes"]) == ("succeeded", "done", 1)
    report_figure(summary(judge_neighbour(cluster, job, latest=6)))


def test_a_poison_pill_reaches_the_dead_letters_and_everything_else_goes_on(
    new_cluster: OpenCluster, report_figure: ReportFigure
) -> None:
    cluster = new_cluster("postgres", **QUICK)
    cluster.node("api,planner")
    workers = cluster.spawn(
        "poisoned",
        ["serve", "--roles", "worker", "--app", "tests.system.hostile_tasks:app", "--processes", "2"],
        roles=frozenset({"worker"}),
    )
    eventually(lambda: workers.output().count("ready") >= 2, "both workers are up", within=30)
    with neighbour(cluster) as job:
        pill = cluster.rest.create("hostile.kill_worker", max_retries=0)
        run = cluster.rest.wait(run_of(pill["id"]), within=90)
    assert (run["status"], run["error"]["type"], run["crashes"]) == ("failed", "crash", 5)
    starts = cluster.effects.starts(pill["id"])
    assert len(starts) == 5
    assert len({start.pid for start in starts}) == 5
    letters = cluster.rest.get("/v1/dead-letters")["items"]
    assert [letter["id"] for letter in letters] == [run_of(pill["id"])]
    latenesses = judge_neighbour(cluster, job, latest=SUSPECTED)
    report_figure(summary(latenesses))
    assert percentile(latenesses, 50) < LATEST


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_slow_and_senseless_clients_do_not_keep_others_waiting(
    new_cluster: OpenCluster, store: str, report_figure: ReportFigure
) -> None:
    cluster: Cluster = new_cluster(store)
    node = hostile_node(cluster)
    before, lines = memory_of(node), len(node.output().splitlines())
    with neighbour(cluster) as job, Siege(str(node.url), each=100) as siege:
        took = good_requests(cluster, seconds=25)  # longer than a head may take
        eventually(lambda: sum(b" 408 " in said for said in siege.dropped) >= 150, "slow heads are dropped", within=10)
    latenesses = judge_neighbour(cluster, job, latest=LATEST)
    p99 = percentile(took, 99)
    report_figure(
        f"{len(took)} requests, p99 {p99 * 1000:.0f} ms, beside {siege.nonsense} of nonsense; {summary(latenesses)}"
    )
    assert siege.nonsense > 100
    assert p99 < LATEST
    assert memory_of(node) - before < 200
    assert len(node.output().splitlines()) - lines < 20
