"""Results on their way to the store: grouped, sent again, never lost."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import cast

import pytest
from structlog.testing import capture_logs

from horae.core.decisions.results import Settled, start, succeed
from horae.core.errors import Unavailable
from horae.core.model import JobId, NodeId, Run, RunId, Spec, State
from horae.core.values import replace
from horae.engine.worker.settler import (
    ENOUGH,
    GROUP,
    GROUP_SIZE,
    RESULT_DELAY,
    START_DELAY,
    STREAM,
    STREAM_DELAY,
    Settler,
)
from horae.metrics import Metrics
from horae.ports.store import Store
from tests.clocks import ManualClock
from tests.engine.system import START


class StoreDouble:
    """A store with the two verbs that a settler uses, and with outages on demand."""

    def __init__(self) -> None:
        self.down = False
        self.groups: list[list[Settled]] = []
        self.started: list[list[Run]] = []
        self.while_settling: Callable[[], None] = lambda: None
        self.while_starting: Callable[[], None] = lambda: None

    async def settle(self, results: list[Settled]) -> list[bool]:
        if self.down:
            raise Unavailable("down")
        self.groups.append(results)
        self.while_settling()
        return [result.run.fence == 1 for result in results]

    async def start(self, runs: list[Run]) -> list[bool]:
        self.started.append(runs)
        self.while_starting()
        return [True] * len(runs)


class Scene:
    def __init__(self) -> None:
        self.clock = ManualClock(START)
        self.store = StoreDouble()
        self.metrics = Metrics()
        self.woken: list[object] = []
        self.on_settled: Callable[[Sequence[Settled]], None] = lambda results: None
        self.settler = Settler(
            cast(Store, self.store),
            self.clock,
            self.metrics,
            wake=self.woken.append,
            settled=lambda results: self.on_settled(results),
        )


@pytest.fixture
def scene() -> Scene:
    return Scene()


def running(number: int = 1, fence: int = 1) -> Run:
    run = Run(
        id=RunId(f"{number:032x}"),
        job_id=JobId(f"{number:032x}"),
        owner="local",
        created_by="local",
        spec=Spec(task="echo"),
        due_at=START,
        wake_at=START,
        created_at=START,
        state=State.CLAIMED,
        node=NodeId("a" * 32),
        fence=fence,
    )
    return start(run, START)


def done(number: int = 1, fence: int = 1, gate: str | None = None) -> Settled:
    return succeed(replace(running(number, fence), gate=gate), None, START)


async def test_results_go_in_groups(scene: Scene) -> None:
    for number in range(GROUP + ENOUGH + 5):
        scene.settler.add(done(number), START)
    await scene.settler.tick()
    assert [len(group) for group in scene.store.groups] == [GROUP, ENOUGH + 5]
    assert scene.settler.unsettled == 0


async def test_results_that_bring_much_go_in_small_groups(scene: Scene) -> None:
    half, whole = "x" * (GROUP_SIZE // 2), "x" * (GROUP_SIZE + 1)
    for number, result in enumerate([half, half, half, whole, None, None]):
        scene.settler.add(succeed(running(number), result, START), START)
    while scene.settler.unsettled:
        await scene.settler.tick()
    assert [len(group) for group in scene.store.groups] == [2, 1, 1, 2]


async def test_what_comes_during_a_write_waits_for_company(scene: Scene) -> None:
    scene.on_settled = lambda results: scene.settler.add(done(2), START) if len(results) > 1 else None
    scene.settler.add(done(0), START)
    scene.settler.add(done(1), START)
    assert await scene.settler.tick() == START + RESULT_DELAY
    assert [len(group) for group in scene.store.groups] == [2]
    assert await scene.settler.tick() is None
    assert [len(group) for group in scene.store.groups] == [2, 1]


async def test_enough_results_are_written_at_once(scene: Scene) -> None:
    for number in range(ENOUGH):
        scene.settler.add(done(number), START)
    assert scene.woken == [START + RESULT_DELAY, None]


async def test_what_the_store_did_not_answer_is_sent_again_in_the_same_order(scene: Scene) -> None:
    results = [done(number) for number in range(3)]
    scene.store.down = True
    for result in results:
        scene.settler.add(result, START)
    with pytest.raises(Unavailable):
        await scene.settler.tick()
    assert scene.settler.unsettled == 3
    scene.store.down = False
    await scene.settler.tick()
    assert scene.store.groups == [results]


async def test_each_result_is_told_whether_it_counts(scene: Scene) -> None:
    good, void = done(1), done(2, fence=7)
    scene.settler.add(good, START)
    scene.settler.add(void, START)
    with capture_logs() as lines:
        await scene.settler.tick()
    assert [(line["event"], line["first_run"]) for line in lines] == [("results_void", f"run_{void.run.id}")]
    assert 'horae_runs_total{queue="default",status="succeeded",task="echo"} 1.0' in scene.metrics.text().decode()


async def test_a_start_is_written_late_and_not_at_all_when_its_result_comes_first(scene: Scene) -> None:
    quick, slow = running(1), running(2)
    scene.settler.started(quick, START)
    scene.settler.started(slow, START)
    scene.settler.add(done(1), START)
    again = await scene.settler.tick()
    assert (scene.store.started, again) == ([], START + START_DELAY)
    scene.clock.advance(seconds=START_DELAY.total_seconds())
    await scene.settler.tick()
    assert scene.store.started == [[slow]]


async def test_a_start_is_written_although_results_do_not_end(scene: Scene) -> None:
    scene.settler.started(running(0), START)
    scene.clock.move_to(START + START_DELAY)
    full_groups, groups_before = iter(range(3)), list[int]()

    def fill_again() -> None:
        for number in range(ENOUGH if next(full_groups, None) is not None else 0):
            scene.settler.add(done(1 + number), scene.clock.now())

    scene.store.while_settling = fill_again
    scene.store.while_starting = lambda: groups_before.append(len(scene.store.groups))
    scene.settler.add(done(1), scene.clock.now())
    await scene.settler.tick()
    assert (groups_before, len(scene.store.groups)) == ([1], 4)


async def test_the_newest_progress_is_what_is_written(scene: Scene) -> None:
    run = running()
    scene.settler.started(run, START)
    scene.clock.advance(seconds=0.05)
    scene.settler.started(replace(run, progress=0.5), scene.clock.now())
    scene.clock.move_to(START + START_DELAY)
    await scene.settler.tick()
    assert [[run.progress for run in runs] for runs in scene.store.started] == [[0.5]]
    assert await scene.settler.tick() is None


async def test_progress_during_a_write_is_written_with_the_next(scene: Scene) -> None:
    run = running()
    scene.store.while_starting = lambda: scene.settler.started(replace(run, progress=0.5), scene.clock.now())
    scene.settler.started(run, START)
    written_at = scene.clock.move_to(START + START_DELAY)
    assert await scene.settler.tick() == written_at + START_DELAY
    scene.store.while_starting = lambda: None
    scene.clock.move_to(written_at + START_DELAY)
    assert await scene.settler.tick() is None
    assert [[run.progress for run in runs] for runs in scene.store.started] == [[None], [0.5]]


async def test_one_call_is_enough_for_all_starts_until_the_next_look(scene: Scene) -> None:
    scene.settler.started(running(1), START)
    scene.settler.add(done(1), START)
    scene.settler.started(running(2), START)
    assert scene.woken == [START + START_DELAY, START + RESULT_DELAY]
    scene.clock.move_to(START + START_DELAY)
    assert await scene.settler.tick() is None
    scene.settler.started(running(3), scene.clock.now())
    assert scene.woken[2:] == [scene.clock.now() + START_DELAY]


async def test_a_lone_result_does_not_wait_for_company(scene: Scene) -> None:
    scene.settler.add(done(), START)
    assert scene.woken == [START + RESULT_DELAY]


class TestStream:
    """Results that come so fast that larger groups make each of them cheaper."""

    async def given(self, scene: Scene, count: int = STREAM, gate: str | None = None) -> list[object]:
        """Write so many results; returns the list of the wake-ups for the next ones."""
        for number in range(count):
            scene.settler.add(done(number, gate=gate), START)
        await scene.settler.tick()
        scene.woken.clear()
        return scene.woken

    async def test_its_results_wait_longer_for_company(self, scene: Scene) -> None:
        woken = await self.given(scene)
        for number in range(3):
            scene.settler.add(done(number), START)
        assert woken == [START + STREAM_DELAY]

    async def test_a_few_results_are_none(self, scene: Scene) -> None:
        woken = await self.given(scene, STREAM - 1)
        scene.settler.add(done(), START)
        assert woken == [START + RESULT_DELAY]

    async def test_results_with_a_gate_are_none(self, scene: Scene) -> None:
        woken = await self.given(scene, STREAM, gate="g")
        scene.settler.add(done(), START)
        assert woken == [START + RESULT_DELAY]

    async def test_a_lone_result_after_it_waits_no_longer_than_ever(self, scene: Scene) -> None:
        woken = await self.given(scene)
        later = scene.clock.move_to(START + STREAM_DELAY)
        scene.settler.add(done(), later)
        assert woken == [later + RESULT_DELAY]

    async def test_a_result_with_a_gate_takes_those_along_that_wait_with_it(self, scene: Scene) -> None:
        woken = await self.given(scene)
        scene.settler.add(done(1), START)
        for number in range(2, 5):
            scene.settler.add(done(number, gate="g"), START)
        assert woken == [START + STREAM_DELAY, START + RESULT_DELAY]

    async def test_a_result_with_a_gate_does_not_wait_when_its_time_has_nearly_come(self, scene: Scene) -> None:
        woken = await self.given(scene)
        scene.settler.add(done(1), START)
        scene.settler.add(done(2, gate="g"), scene.clock.move_to(START + STREAM_DELAY - RESULT_DELAY))
        assert woken == [START + STREAM_DELAY]

    async def test_enough_of_it_is_written_at_once(self, scene: Scene) -> None:
        woken = await self.given(scene)
        for number in range(ENOUGH):
            scene.settler.add(done(number), START)
        assert woken == [START + STREAM_DELAY, None]

    @pytest.mark.parametrize(("gate", "delay"), [(None, STREAM_DELAY), ("g", RESULT_DELAY)])
    async def test_what_comes_during_a_write_waits_as_long(
        self, scene: Scene, gate: str | None, delay: timedelta
    ) -> None:
        scene.store.while_settling = lambda: scene.settler.add(done(STREAM, gate=gate), START)
        for number in range(STREAM):
            scene.settler.add(done(number), START)
        assert await scene.settler.tick() == START + delay


async def test_a_worker_that_lost_its_lease_tells_of_its_void_results_in_one_line(scene: Scene) -> None:
    for number in range(100):
        scene.settler.add(done(number, fence=1 if number < 40 else 7), START)
    with capture_logs() as lines:
        await scene.settler.tick()
    assert [(line["event"], line["runs"]) for line in lines] == [("results_void", 60)]
