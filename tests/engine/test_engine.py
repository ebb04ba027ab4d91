"""The engine as a whole, in virtual time: runs start on time, in order, once, and are settled whatever dies."""

from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from horae.core.decisions.firing import Due, fire
from horae.core.decisions.release import gate_of
from horae.core.decisions.results import Failure
from horae.core.decisions.retry import RetryPolicy
from horae.core.model import (
    Job,
    JobError,
    JobId,
    JobStatus,
    Misfire,
    Outcome,
    Overlap,
    Policy,
    Reason,
    Run,
    RunId,
    Spec,
    State,
)
from horae.core.schedule.evaluate import count_between, next_after
from horae.core.schedule.parse import parse_schedule
from horae.core.values import replace
from horae.lookup import find_job
from tests import acts
from tests.acts import JobChange
from tests.conformance.builders import attempts_of
from tests.engine.system import START, System, failing, instantly, taking

ERROR = Failure(error=JobError(type="Boom", message="boom"))
MILLISECOND = timedelta(milliseconds=1)
MICROSECOND = timedelta(microseconds=1)


def a_one_shot(
    system: System, task: str = "echo", *, delay: float = 0.0, owner: str = "local", **changes: object
) -> Run:
    now = system.clock.now()
    due_at = now + timedelta(seconds=delay)
    job_id = JobId(system.new_id())
    spec = Spec(task=task, **changes)  # type: ignore[arg-type]
    return Run(
        id=RunId(job_id),
        job_id=job_id,
        owner=owner,
        created_by=owner,
        spec=spec,
        schedule=parse_schedule("now", now=now),
        due_at=due_at,
        wake_at=max(due_at, now),
        gate=gate_of(spec, job_id, owner, recurring=False),
        created_at=now,
    )


async def one_shot(system: System, task: str = "echo", *, delay: float = 0.0, **changes: object) -> Run:
    [run] = await one_shots(system, 1, task, delay=delay, **changes)
    return run


async def one_shots(
    system: System, count: int, task: str = "echo", *, delay: float = 0.0, **changes: object
) -> list[Run]:
    runs = [a_one_shot(system, task, delay=delay, **changes) for _ in range(count)]
    assert await acts.create(system.store, runs) == [run.job_id for run in runs]
    return runs


async def recurring(system: System, schedule: object, task: str = "echo", **policy: object) -> Job:
    now = system.clock.now()
    parsed = parse_schedule(schedule, now=now)  # type: ignore[arg-type]
    job = Job(
        id=JobId(system.new_id()),
        owner="local",
        created_by="local",
        spec=Spec(task=task, policy=Policy(**policy)),  # type: ignore[arg-type]
        schedule=parsed,
        next_fire_at=next_after(parsed, now),
        plan_at=now,
        created_at=now,
        updated_at=now,
    )
    firing = fire(Due(job=job), now=now, horizon=system.timing.horizon, new_id=system.new_id)
    assert await acts.create(system.store, [firing]) == [job.id]
    return job


async def pause(system: System, job: Job) -> None:
    """Pause a job as the service does."""
    now = system.clock.now()
    found = await find_job(system.store, job.id, owner=None)
    assert found is not None
    paused = replace(found, status=JobStatus.PAUSED, plan_at=None, revision=found.revision + 1, updated_at=now)
    change = JobChange(job=paused, expected=found.revision, retract_after=now, rewind=True, stop=Reason.PAUSED)
    assert await acts.change(system.store, change) is not None


async def outcomes(system: System, job: Job, until: datetime) -> dict[str, int]:
    """Count the slots of a job by outcome, from its ledger; every slot once."""
    ledger = await system.store.ledger(job.id, start=job.created_at, end=until, limit=100_000)
    slots = [run.slot for run in ledger.runs]
    assert len(slots) == len(set(slots)), "a slot has two runs"
    counts: dict[str, int] = {}
    for run in ledger.runs:
        name = f"{run.state}" if run.reason is None else f"{run.state}:{run.reason}"
        counts[name] = counts.get(name, 0) + 1
    for skip in ledger.skips:
        counts[f"skipped:{skip.reason}"] = counts.get(f"skipped:{skip.reason}", 0) + skip.count
    return counts


class TestOnTime:
    async def test_a_job_for_now_starts_at_once(self, system: System) -> None:
        await system.add_node()
        await system.settle_all()
        run = await one_shot(system)
        await system.settle_all()
        assert [start.at for start in system.starts] == [run.due_at]

    async def test_a_job_for_later_starts_at_its_instant(self, system: System) -> None:
        await system.add_node()
        run = await one_shot(system, delay=3)
        await system.advance(seconds=10)
        [start] = system.starts
        assert start.at == run.due_at
        assert (await system.run(run.id)).state is State.SUCCEEDED

    async def test_a_job_of_every_second_starts_each_second_once(self, system: System) -> None:
        await system.add_node()
        job = await recurring(system, "* * * * * *")
        await system.advance(seconds=60)
        starts = [start.at for start in system.starts_of(job.id)]
        assert starts == [job.created_at + timedelta(seconds=n) for n in range(1, 61)]

    async def test_three_nodes_share_the_work_and_double_nothing(self, system: System) -> None:
        for _ in range(3):
            await system.add_node(concurrency=4)
        jobs = [await recurring(system, "* * * * * *", overlap=Overlap.ALLOW) for _ in range(9)]
        await system.advance(seconds=20)
        for job in jobs:
            assert len({start.at for start in system.starts_of(job.id)}) == len(system.starts_of(job.id)) == 20
        assert len({start.node for start in system.starts}) > 1

    async def test_a_node_that_hears_no_signal_starts_everything_all_the_same(self, system: System) -> None:
        node = await system.add_node()
        node.unsubscribe()
        await system.settle_all()
        runs = [await one_shot(system), await one_shot(system, delay=7)]
        job = await recurring(system, "* * * * * *", overlap=Overlap.ALLOW)
        await system.advance(seconds=30.5)
        assert [(await system.run(run.id)).state for run in runs] == [State.SUCCEEDED] * 2
        slots = [start.run.slot for start in system.starts_of(job.id)]
        assert slots == [job.created_at + timedelta(seconds=n) for n in range(1, 31)]

    async def test_a_higher_priority_goes_first_when_there_is_not_room_for_all(self, system: System) -> None:
        await system.add_node(concurrency=1)
        system.scripts["slow"] = taking(1)
        for priority in (0, 50, -50, 100):
            await one_shot(system, delay=5, priority=priority)
        await system.advance(seconds=60)
        assert [start.run.spec.priority for start in system.starts] == [100, 50, 0, -50]

    async def test_a_start_after_its_window_is_skipped_as_too_late(self, system: System) -> None:
        run = await one_shot(system, policy=Policy(start_within=timedelta(seconds=10)))
        await system.advance(seconds=11)
        await system.add_node()
        await system.advance(seconds=5)
        ended = await system.run(run.id)
        assert (ended.state, ended.reason, system.starts) == (State.SKIPPED, Reason.TOO_LATE, [])

    async def test_a_one_shot_runs_however_late(self, system: System) -> None:
        run = await one_shot(system)
        await system.advance(days=2)
        await system.add_node()
        await system.advance(seconds=5)
        assert (await system.run(run.id)).state is State.SUCCEEDED


class TestRetries:
    async def test_a_failing_run_comes_back_after_exactly_its_delays(self, system: System) -> None:
        await system.add_node()
        system.scripts["flaky"] = failing(2, ERROR)
        policy = Policy(retry=RetryPolicy(jitter=False))
        run = await one_shot(system, "flaky", policy=policy)
        await system.advance(minutes=2)
        assert [(start.at - run.due_at).total_seconds() for start in system.starts] == pytest.approx([0, 5, 15])
        ended = await system.run(run.id)
        assert (ended.state, ended.attempt) == (State.SUCCEEDED, 3)
        assert [(a.number, a.outcome) for a in await attempts_of(system.store, run.id)] == [
            (1, Outcome.FAILED),
            (2, Outcome.FAILED),
        ]

    async def test_jitter_makes_delays_longer_by_up_to_a_quarter(self, system: System) -> None:
        await system.add_node()
        system.scripts["flaky"] = failing(3, ERROR)
        run = await one_shot(system, "flaky")
        await system.advance(minutes=5)
        at = [start.at for start in system.starts_of(run.job_id)]
        delays = [(later - sooner).total_seconds() for sooner, later in pairwise(at)]
        assert all(exact <= delay <= exact * 1.26 for exact, delay in zip([5, 10, 20], delays, strict=True))

    async def test_a_run_without_end_of_failures_is_failed_after_its_retries(self, system: System) -> None:
        await system.add_node()
        system.scripts["broken"] = failing(99, ERROR)
        run = await one_shot(system, "broken")
        await system.advance(minutes=5)
        ended = await system.run(run.id)
        assert (ended.state, ended.attempt, len(system.starts)) == (State.FAILED, 4, 4)
        assert ended.error == ERROR.error


class TestOverlap:
    async def test_skip_leaves_a_skipped_run_with_its_reason(self, system: System) -> None:
        await system.add_node()
        system.scripts["slow"] = taking(2.5)
        job = await recurring(system, "* * * * * *", "slow")
        await system.advance(seconds=12)
        starts = [(start.at - job.created_at).total_seconds() for start in system.starts_of(job.id)]
        assert starts == [1, 4, 7, 10]
        counts = await outcomes(system, job, job.created_at + timedelta(seconds=9))
        assert counts == {"succeeded": 3, "skipped:overlap": 6}

    async def test_skip_holds_across_nodes(self, system: System) -> None:
        for _ in range(3):
            await system.add_node(concurrency=1)
        system.scripts["slow"] = taking(2.5)
        job = await recurring(system, "* * * * * *", "slow")
        for _ in range(2):  # other work that makes the nodes take turns
            await one_shot(system, "slow", delay=3)
        await system.advance(seconds=30)
        spans = [(start.at, start.ended_at or system.clock.now()) for start in system.starts_of(job.id)]
        assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
        until = job.created_at + timedelta(seconds=20)
        assert sum((await outcomes(system, job, until)).values()) == 20

    async def test_buffer_one_runs_one_afterwards(self, system: System) -> None:
        await system.add_node()
        system.scripts["slow"] = taking(2.5)
        job = await recurring(system, "* * * * * *", "slow", overlap=Overlap.BUFFER_ONE)
        await system.advance(seconds=11.2)
        starts = [(start.at - job.created_at).total_seconds() for start in system.starts_of(job.id)]
        assert starts == [1, 3.5, 6, 8.5, 11]
        counts = await outcomes(system, job, job.created_at + timedelta(seconds=10))
        assert counts["skipped:overlap"] > 0
        assert sum(counts.values()) == 10

    async def test_allow_lets_runs_overlap(self, system: System) -> None:
        await system.add_node()
        system.scripts["slow"] = taking(2.5)
        job = await recurring(system, "* * * * * *", "slow", overlap=Overlap.ALLOW)
        await system.advance(seconds=10.5)
        assert len(system.starts_of(job.id)) == 10

    async def test_a_retrying_run_counts_as_still_going(self, system: System) -> None:
        await system.add_node()
        system.scripts["flaky"] = failing(1, ERROR)
        job = await recurring(system, "* * * * * *", "flaky", retry=RetryPolicy(jitter=False))
        await system.advance(seconds=5.5)
        assert [(s.at - job.created_at).total_seconds() for s in system.starts_of(job.id)] == [1]
        await system.advance(seconds=10)
        counts = await outcomes(system, job, job.created_at + timedelta(seconds=5))
        assert counts == {"succeeded": 1, "skipped:overlap": 4}


class TestOrder:
    async def test_runs_of_one_key_keep_their_order_on_three_nodes_with_retries(self, system: System) -> None:
        for _ in range(3):
            await system.add_node(concurrency=2)
        flaky = {4, 9, 10}
        system.scripts["step"] = lambda run: (
            (0.3, ERROR) if int(run.spec.params) in flaky and run.attempt == 1 else (0.3, instantly(run)[1])
        )
        runs = [await one_shot(system, "step", ordering_key="user-42", params=str(n)) for n in range(15)]
        await system.advance(minutes=3)
        for run in runs:
            assert (await system.run(run.id)).state is State.SUCCEEDED
        order = [int(start.run.spec.params) for start in system.starts]
        assert order == sorted(order)
        assert len(order) == 15 + len(flaky)
        spans = [(start.at, start.ended_at) for start in system.starts]
        assert all(end is not None and end <= begin for (_, end), (begin, _) in pairwise(spans))

    async def test_what_is_due_behind_a_run_starts_right_after_it(self, system: System) -> None:
        await system.add_node()
        first, second = await one_shots(system, 2, ordering_key="k")
        await system.advance(seconds=1)
        [start] = system.starts_of(second.job_id)
        assert start.at - first.due_at < timedelta(milliseconds=40), (
            "it does not wait for the next of a stream of claims"
        )

    async def test_other_keys_do_not_wait(self, system: System) -> None:
        await system.add_node()
        system.scripts["slow"] = taking(10)
        await one_shot(system, "slow", ordering_key="a")
        await one_shot(system, "slow", ordering_key="a")
        other = await one_shot(system, "echo", ordering_key="b")
        await system.advance(seconds=1)
        assert (await system.run(other.id)).state is State.SUCCEEDED

    async def test_hundreds_that_wait_behind_one_key_cost_their_neighbours_nothing(self, system: System) -> None:
        await system.add_node(concurrency=10)
        system.scripts["slow"] = taking(60)
        for _ in range(300):
            await one_shot(system, "slow", ordering_key="a")
        await system.advance(seconds=2)
        other = await one_shot(system)
        await system.settle_all()
        assert [start.at for start in system.starts_of(other.job_id)] == [other.due_at]


class TestDeath:
    async def test_runs_of_a_killed_node_start_again_without_using_up_a_retry(self, system: System) -> None:
        victim = await system.add_node()
        system.scripts["long"] = taking(60)
        runs = [await one_shot(system, "long") for _ in range(20)]
        await system.advance(seconds=1)
        assert len(system.starts) == 20
        victim.kill()
        await system.add_node()
        await system.advance(seconds=25)
        assert len(system.starts) == 40, "not everything was started again within 25 s"
        await system.advance(minutes=2)
        for run in runs:
            ended = await system.run(run.id)
            assert (ended.state, ended.attempt, ended.crashes) == (State.SUCCEEDED, 1, 1)
            [attempt] = await attempts_of(system.store, run.id)
            assert (attempt.number, attempt.outcome) == (1, Outcome.LOST)

    async def test_a_killed_planner_costs_no_lateness(self, system: System) -> None:
        first = await system.add_node()
        await system.add_node()
        jobs = [await recurring(system, "* * * * * *", overlap=Overlap.ALLOW) for _ in range(4)]
        await system.advance(seconds=31)
        system.scripts["echo"] = instantly
        first.kill()
        before = system.clock.now() + timedelta(seconds=17)
        await system.advance(seconds=60)
        for job in jobs:
            late = [s for s in system.starts_of(job.id) if s.at > before and s.at - s.run.due_at > MILLISECOND]
            assert not late

    async def test_nodes_that_come_and_go_every_second_starve_no_slot(self, system: System) -> None:
        jobs = [await recurring(system, "* * * * * *", overlap=Overlap.ALLOW) for _ in range(4)]
        nodes = [await system.add_node() for _ in range(2)]
        for _ in range(20):
            await system.advance(seconds=1)
            await nodes.pop(0).drain()
            nodes.append(await system.add_node())
        await system.advance(seconds=1)
        for job in jobs:
            starts = [start for start in system.starts_of(job.id) if start.run.due_at <= START + timedelta(seconds=20)]
            assert [start.run.slot for start in starts] == [START + timedelta(seconds=n) for n in range(1, 21)]
            assert max(start.at - start.run.due_at for start in starts) <= timedelta(seconds=1)

    async def test_a_node_that_sleeps_past_its_lease_starts_nothing_stale_and_its_results_are_void(
        self, system: System
    ) -> None:
        sleeper = await system.add_node()
        system.scripts["long"] = taking(10)
        running = await one_shot(system, "long")
        claimed = await one_shot(system, delay=2)
        await system.advance(seconds=1.5)
        sleeper.freeze()
        other = await system.add_node()
        await system.advance(seconds=40)
        sleeper.thaw()
        await system.advance(seconds=10)
        assert [s.node for s in system.starts_of(claimed.job_id)] == [other.heartbeat.node.id]
        for run in (running, claimed):
            assert (await system.run(run.id)).state is State.SUCCEEDED
        assert len(system.starts_of(running.job_id)) == 2
        later = await one_shot(system)
        other.kill()
        await system.advance(seconds=5)
        assert (await system.run(later.id)).state is State.SUCCEEDED, "the sleeper did not come back to work"

    async def test_a_worker_that_is_cut_off_stops_what_it_runs_when_its_lease_ends(self, system: System) -> None:
        node = await system.add_node()
        system.scripts["long"] = taking(60)
        await one_shot(system, "long")
        await system.advance(seconds=1)
        node.cut_off()
        await system.advance(seconds=12)
        assert node.worker.running == 1, "its lease is good for 15 s"
        await system.advance(seconds=4)
        assert node.worker.running == 0
        assert [start.ended_at for start in system.starts] == [None], "it was stopped, and has no result"

    async def test_a_worker_with_an_unsafe_lease_does_not_start_the_next_run_of_a_key(self, system: System) -> None:
        node = await system.add_node()
        system.scripts["long"] = taking(14)
        await one_shot(system, "long", ordering_key="k")
        behind = await one_shot(system, delay=1.5, ordering_key="k")
        await system.advance(seconds=1)
        assert (node.worker.running, node.worker.holding) == (1, 1)
        node.cut_off()
        await system.advance(seconds=12.5)
        node.worker.release_due()
        assert node.worker.suspended
        await system.advance(seconds=1)
        assert (node.worker.running, node.worker.holding) == (0, 1), "the first has ended, the next must not start"
        node.reconnect()
        await system.advance(seconds=30)
        assert (await system.run(behind.id)).state is State.SUCCEEDED
        assert len(system.starts_of(behind.job_id)) == 1

    async def test_a_poison_pill_is_failed_after_five_dead_workers(self, system: System) -> None:
        system.scripts["poison"] = taking(3600)
        run = await one_shot(system, "poison")
        for _ in range(5):
            node = await system.add_node()
            await system.advance(seconds=20)
            node.kill()
            await system.advance(seconds=20)
        await system.add_node()
        await system.advance(seconds=60)
        ended = await system.run(run.id)
        assert (ended.state, ended.crashes) == (State.FAILED, 5)
        assert ended.error is not None
        assert ended.error.type == "crash"

    async def test_neighbours_of_a_poison_pill_are_not_failed_with_it(self, system: System) -> None:
        """One worker at a time: it dies with everything that it holds when the pill starts."""
        system.scripts["poison"] = taking(3600)
        system.scripts["quick"] = taking(0.2)
        pill = await one_shot(system, "poison")
        quick = [await one_shot(system, "quick") for _ in range(30)]
        for deaths in range(5):
            node = await system.add_node()
            while len(system.starts_of(pill.job_id)) == deaths:
                await system.advance(seconds=0.1)
            node.kill()
            await system.advance(seconds=3)  # until it is started again
        await system.add_node()
        await system.advance(seconds=60)
        assert (await system.run(pill.id)).state is State.FAILED
        assert [(await system.run(run.id)).state for run in quick] == [State.SUCCEEDED] * 30

    async def test_a_drained_node_gives_back_what_it_has_not_started(self, system: System) -> None:
        node = await system.add_node()
        run = await one_shot(system, delay=2)
        await system.advance(seconds=1.5)
        assert node.worker.holding == 1
        await node.drain()
        other = await system.add_node()
        await system.advance(seconds=5)
        ended = await system.run(run.id)
        assert (ended.state, ended.attempt, ended.crashes) == (State.SUCCEEDED, 1, 0)
        assert system.starts[-1].node == other.heartbeat.node.id

    async def test_an_outage_of_the_store_buries_nobody_who_comes_back(self, system: System) -> None:
        nodes = [await system.add_node() for _ in range(3)]
        await system.advance(seconds=5)
        before = {node.heartbeat.node.id for node in nodes}
        system.clock.advance(seconds=60)  # nobody could beat, and all are equally late
        await system.advance(seconds=30)
        assert {node.heartbeat.node.id for node in nodes} == before
        run = await one_shot(system)
        await system.advance(seconds=1)
        assert (await system.run(run.id)).state is State.SUCCEEDED

    async def test_a_gate_of_a_dead_node_opens_again(self, system: System) -> None:
        victim = await system.add_node()
        system.scripts["long"] = taking(30)
        first = await one_shot(system, "long", ordering_key="k")
        second = await one_shot(system, ordering_key="k")
        await system.advance(seconds=1)
        victim.kill()
        await system.add_node()
        await system.advance(minutes=2)
        assert [s.run.id for s in system.starts] == [first.id, first.id, second.id]
        assert (await system.run(second.id)).state is State.SUCCEEDED


class TestStops:
    async def test_a_cancel_inside_the_lead_keeps_the_run_from_starting(self, system: System) -> None:
        node = await system.add_node()
        run = await one_shot(system, delay=1.5)
        await system.advance(seconds=1)
        assert node.worker.holding == 1
        assert await acts.request_stop(system.store, [run.id], Reason.CANCELLED) == [node.heartbeat.node.id]
        await system.settle_all()
        await system.advance(seconds=0.1)
        assert (await system.run(run.id)).state is State.CANCELLED
        await system.advance(seconds=5)
        assert not system.starts

    async def test_a_running_run_is_cancelled_by_its_node(self, system: System) -> None:
        await system.add_node()
        system.scripts["long"] = taking(60)
        run = await one_shot(system, "long")
        await system.advance(seconds=1)
        await acts.request_stop(system.store, [run.id], Reason.CANCELLED)
        await system.advance(seconds=1)
        ended = await system.run(run.id)
        assert (ended.state, ended.attempt) == (State.CANCELLED, 1)

    async def test_a_pause_inside_the_lead_takes_the_slot_back(self, system: System) -> None:
        node = await system.add_node()
        job = await recurring(system, "*/10 * * * * *")
        await system.advance(seconds=9.5)
        assert node.worker.holding == 1
        await pause(system, job)
        await system.advance(seconds=20)
        assert system.starts == []
        paused = await find_job(system.store, job.id, owner=None)
        assert paused is not None
        assert paused.next_fire_at == job.created_at + timedelta(seconds=10), "its slot is open again"
        assert (await system.store.ledger(job.id, start=job.created_at, end=system.clock.now(), limit=10)).runs == []

    async def test_a_pause_spares_what_is_already_due(self, system: System) -> None:
        await system.add_node()
        system.scripts["slow"] = taking(5)
        job = await recurring(system, "* * * * * *", "slow", overlap=Overlap.BUFFER_ONE)
        await system.advance(seconds=2.2)  # one runs, one waits for it
        await pause(system, job)
        await system.advance(seconds=20)
        assert [(start.at - job.created_at).total_seconds() for start in system.starts] == [1, 6]

    async def test_a_cancel_is_not_forgotten_when_the_node_dies(self, system: System) -> None:
        node = await system.add_node()
        system.scripts["long"] = taking(60)
        run = await one_shot(system, "long")
        await system.advance(seconds=1)
        node.kill()
        await acts.request_stop(system.store, [run.id], Reason.CANCELLED)
        await system.add_node()
        await system.advance(seconds=30)
        assert (await system.run(run.id)).state is State.CANCELLED
        assert len(system.starts) == 1

    async def test_a_cancel_that_its_node_missed_ends_the_run_before_its_next_attempt(self, system: System) -> None:
        node = await system.add_node()
        node.duties.remove(node.stopping)
        system.scripts["flaky"] = failing(1, ERROR, seconds=1)
        run = await one_shot(system, "flaky")
        await system.advance(seconds=0.5)
        await acts.request_stop(system.store, [run.id], Reason.CANCELLED)
        await system.advance(seconds=20)
        assert (await system.run(run.id)).state is State.CANCELLED
        assert len(system.starts) == 1


class TestDowntime:
    @pytest.mark.parametrize("misfire", Misfire)
    @pytest.mark.parametrize("down", [timedelta(minutes=5), timedelta(hours=2)], ids=["5 min", "2 h"])
    @pytest.mark.parametrize("expression", ["* * * * * *", "* * * * *"], ids=["seconds", "minutes"])
    async def test_after_downtime_each_policy_does_what_it_says_and_every_slot_is_accounted_for(
        self, system: System, misfire: Misfire, down: timedelta, expression: str
    ) -> None:
        node = await system.add_node()
        job = await recurring(system, expression, misfire=misfire, catchup=timedelta(hours=1))
        await system.advance(seconds=90)
        node.kill()
        died_at = system.clock.now()
        system.clock.advance(seconds=down.total_seconds())
        await system.add_node()
        back_at = system.clock.now()
        await system.advance(minutes=4)
        until = back_at + timedelta(minutes=3)
        counts = await outcomes(system, job, until)
        total = count_between(job.schedule, job.created_at + MICROSECOND, until + MICROSECOND)
        assert sum(counts.values()) == total, counts
        already_fired = count_between(job.schedule, died_at, died_at + system.timing.horizon + timedelta(seconds=1))
        missed_before = back_at - timedelta(seconds=5)
        slots = [start.run.slot for start in system.starts_of(job.id) if start.run.slot is not None]
        missed_runs = [slot for slot in slots if died_at < slot < missed_before]
        young = count_between(job.schedule, max(died_at, back_at - timedelta(hours=1)), back_at)
        match misfire:
            case Misfire.SKIP:
                assert len(missed_runs) <= already_fired
            case Misfire.ONCE:
                assert 1 <= len(missed_runs) <= already_fired + 1
            case Misfire.ALL:
                assert len(missed_runs) >= young - 10
                assert counts.get("skipped:misfire", 0) == 0
        if down > timedelta(hours=1):
            assert counts["skipped:too_late"] > 0

    async def test_catching_up_on_everything_is_paced_and_oldest_first(self, system: System) -> None:
        node = await system.add_node()
        job = await recurring(system, "* * * * * *", misfire=Misfire.ALL)
        await system.advance(seconds=10)
        node.kill()
        system.clock.advance(minutes=10)
        await system.add_node()
        await system.advance(minutes=2)
        missed = [s for s in system.starts_of(job.id) if s.at - s.run.due_at > timedelta(seconds=6)]
        slots = [s.run.slot for s in missed if s.run.slot is not None]
        assert len(slots) > 500
        assert slots == sorted(slots)


async def test_a_schedule_that_ends_finishes_its_job(system: System) -> None:
    await system.add_node()
    ends_at = (system.clock.now() + timedelta(seconds=5)).isoformat()
    job = await recurring(system, {"type": "every", "seconds": 1, "ends_at": ends_at})
    await system.advance(seconds=20)
    found = await find_job(system.store, job.id, owner=None)
    assert found is not None
    assert found.status is JobStatus.FINISHED
    assert len(system.starts_of(job.id)) == 4


class TestRoom:
    """A worker holds what it can start, ahead of its time, and no more."""

    async def test_a_herd_is_there_before_its_instant(self, system: System) -> None:
        node = await system.add_node(concurrency=100)
        await one_shots(system, 2000, delay=10)
        await system.advance(seconds=9.5)
        assert node.worker.holding == 2000
        await system.advance(seconds=1)
        assert len(system.starts) == 2000
        assert {start.at for start in system.starts} == {start.run.due_at for start in system.starts}

    async def test_what_finds_no_slot_goes_to_a_node_that_has_one(self, system: System) -> None:
        system.scripts["long"] = taking(3600)
        for _ in range(2):
            await system.add_node(concurrency=4)
        runs = await one_shots(system, 8, "long", delay=5)
        await system.advance(seconds=6)
        assert len(system.starts) == len(runs)
        assert max(start.at - start.run.due_at for start in system.starts) <= timedelta(seconds=0.25)

    async def test_an_old_backlog_is_worked_off_without_going_back_and_forth(self, system: System) -> None:
        system.scripts["slow"] = taking(0.2)
        runs = await one_shots(system, 200, "slow")
        await system.advance(minutes=5)
        await system.add_node(concurrency=10)
        await system.advance(seconds=5)
        ended = [await system.run(run.id) for run in runs]
        assert {run.state for run in ended} == {State.SUCCEEDED}
        assert max(run.fence for run in ended) <= 2, "a new worker may expect too much of its slots, but only once"

    @pytest.mark.parametrize(("queue", "seconds"), [("mail", 0.15), ("default", 1.0)])  # behind what is held, at most
    async def test_what_comes_due_while_a_backlog_is_worked_off_is_not_as_late(
        self, store_system: System, queue: str, seconds: float
    ) -> None:
        system = store_system
        system.scripts["slow"] = taking(0.05)
        await system.add_node(concurrency=10)
        await one_shots(system, 500, "slow", delay=2)
        mail = [await one_shot(system, delay=2 + number / 10, queue=queue) for number in range(1, 20)]
        await system.advance(seconds=10)
        assert len(system.starts) == 500 + len(mail)
        sent = {run.id for run in mail}
        late = [start.at - start.run.due_at for start in system.starts if start.run.id in sent]
        assert max(late) <= timedelta(seconds=seconds)
        assert max(start.at - start.run.due_at for start in system.starts) >= timedelta(seconds=2), "it was a backlog"

    async def test_a_flood_of_one_owner_makes_no_other_late(self, store_system: System) -> None:
        """Neither runs due at the instant of the flood, nor runs that come due while it goes on."""
        system = store_system  # with a queue, the owners' turns are the queue's
        system.scripts["slow"] = taking(0.05)
        await system.add_node(concurrency=10)  # 200 runs a second
        quiet = [await one_shot(system, "slow", delay=2 + number / 4, owner="quiet") for number in range(20)]
        for second in range(2, 7):
            await one_shots(system, 300, "slow", delay=second, owner="flood")
        await system.advance(seconds=8)
        theirs = {run.id for run in quiet}
        late = [start.at - start.run.due_at for start in system.starts if start.run.id in theirs]
        assert len(late) == len(quiet)
        assert max(late) <= timedelta(seconds=0.25)
        flood = [start.run.due_at for start in system.starts if start.run.id not in theirs]
        assert len(flood) > 1000, "it has all that nobody else needs"
        assert len(flood) < 1300, "it was too much"
