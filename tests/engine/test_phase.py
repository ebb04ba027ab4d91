"""The phase of a worker: the only place that decides whether it may claim, start and hold runs."""

from datetime import timedelta

import pytest

from horae.engine.cluster.lease import Lease, Timing
from horae.engine.worker.phase import MAY_HOLD, MAY_WORK, TRANSITIONS, PhaseCause, PhaseTracker, WorkerPhase
from tests.clocks import ManualClock
from tests.engine.system import START

TIMING = Timing()
UNSAFE_AFTER = TIMING.dead_after - TIMING.margin


class Scene:
    def __init__(self) -> None:
        self.clock = ManualClock(START)
        self.lease = Lease(self.clock, TIMING)
        self.phase = PhaseTracker(self.lease)

    def miss_heartbeats(self, time: timedelta = UNSAFE_AFTER) -> None:
        self.clock.move_to(self.clock.now() + time)

    def beat(self) -> None:
        self.lease.renew(self.clock.elapsed())


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_every_phase_has_its_row_and_its_permissions() -> None:
    assert set(TRANSITIONS) == set(WorkerPhase)
    assert {WorkerPhase.WORKING} == MAY_WORK
    assert set(WorkerPhase) - MAY_HOLD == {WorkerPhase.LOST, WorkerPhase.DRAINING}


def test_the_only_way_back_to_work_is_that_the_store_confirms_the_claims() -> None:
    ways = [(phase, cause) for phase, row in TRANSITIONS.items() for cause, to in row.items() if to.name == "WORKING"]
    assert ways == [(WorkerPhase.REVALIDATING, PhaseCause.CLAIMS_CONFIRMED)]


def test_a_shutdown_is_final_and_possible_in_every_phase() -> None:
    assert TRANSITIONS[WorkerPhase.DRAINING] == {}
    others = [row for phase, row in TRANSITIONS.items() if phase is not WorkerPhase.DRAINING]
    assert {row[PhaseCause.SHUTDOWN] for row in others} == {WorkerPhase.DRAINING}


def test_a_lease_that_is_not_safe_suspends_work_until_it_is_renewed_and_the_claims_are_confirmed(scene: Scene) -> None:
    assert scene.phase.check_lease()
    scene.miss_heartbeats()
    assert not scene.phase.check_lease()
    assert (scene.phase.resume(), scene.phase.suspended) == (WorkerPhase.UNSURE, True)
    scene.beat()
    assert not scene.phase.check_lease(), "a look at the lease alone does not confirm the claims"
    assert scene.phase.resume() is WorkerPhase.REVALIDATING
    scene.phase.move(PhaseCause.CLAIMS_CONFIRMED)
    assert (scene.phase.current, scene.phase.suspended) == (WorkerPhase.WORKING, False)


def test_a_node_that_was_declared_dead_works_again_under_its_next_identity(scene: Scene) -> None:
    scene.lease.lost = True
    assert (scene.phase.resume(), scene.phase.may_hold) == (WorkerPhase.LOST, False)
    scene.beat()
    assert scene.phase.resume() is WorkerPhase.REVALIDATING


def test_claims_are_not_confirmed_by_an_answer_from_before_the_last_doubt(scene: Scene) -> None:
    scene.phase.move(PhaseCause.ANSWER_LOST)
    assert scene.phase.resume() is WorkerPhase.REVALIDATING
    scene.phase.move(PhaseCause.ANSWER_LOST)
    scene.phase.move(PhaseCause.CLAIMS_CONFIRMED)
    assert (scene.phase.current, scene.phase.may_work) == (WorkerPhase.UNSURE, False)


def test_a_draining_worker_does_not_care_for_its_lease(scene: Scene) -> None:
    scene.phase.move(PhaseCause.SHUTDOWN)
    scene.miss_heartbeats()
    assert (scene.phase.resume(), scene.phase.suspended) == (WorkerPhase.DRAINING, False)
