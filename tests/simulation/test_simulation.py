"""Simulated lives of a cluster: every guarantee is kept, every seed repeats, and planted defects are found."""

import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from horae.core.changes import Found, Guard, JobUnchanged
from horae.core.records import IdempotencyRecord, KeyHolder
from horae.engine.duties.janitor import Janitor
from horae.proof.checking import Recorder, Recording, judge_recording, read_lines
from horae.proof.checking.history.records import Effect, FinalRun, HandlerEvent, Line
from horae.stores.sqlite.database import STATEMENTS
from horae.stores.sqlite.events import SqliteEventLog
from horae.stores.sqlite.store import SqliteStore
from tests.acts import ACTS
from tests.reverts.sql_edits import SqlEdit, always, keep
from tests.simulation.campaign import live
from tests.simulation.faults import POINTS, READS, VERBS, Kind
from tests.simulation.judging import LEAST_FAULTS, LEAST_RUNS
from tests.simulation.life import HOSTS, TIMING, simulate
from tests.simulation.reads import READ_CALLS

SEEDS = range(20)
DRIFT = 0.02
DRIFTING = (7, 9)
ROOT = Path(__file__).parents[2]


def test_every_promise_is_kept_whatever_breaks() -> None:
    report = live(SEEDS)
    assert not report.failures, "\n".join(report.lines())
    assert report.fewest_runs >= LEAST_RUNS
    assert report.fewest_faults >= LEAST_FAULTS
    met = [point for point in POINTS if report.fired.points[point]]
    assert len(met) >= 0.6 * len(POINTS), "\n".join(report.lines())
    uncalled = [verb for verb in VERBS if not report.fired.passed[verb]]
    assert not uncalled, f"nobody in these lives asks the store for {uncalled}"


def test_steady_clocks_that_drift_by_two_percent_change_nothing_but_milliseconds() -> None:
    """Each heartbeat corrects the clocks, and a node without heartbeats starts nothing."""
    earliest = 0.0
    for seed in DRIFTING:
        outcome = simulate(seed, drift=DRIFT)
        assert outcome.fired.faults[Kind.CLOCK] >= HOSTS
        assert outcome.violations == []
        earliest = max(earliest, _earliest(outcome.lines))
    assert 0 < earliest <= DRIFT * TIMING.dead_after.total_seconds()


def _earliest(lines: Sequence[Line]) -> float:
    """The longest time by which a handler started before its slot."""
    slots = {line.run for line in lines if isinstance(line, FinalRun) and line.slot is not None}
    starts = [line for line in lines if isinstance(line, Effect) and line.event is HandlerEvent.START]
    return max(start.due - start.at for start in starts if start.run in slots)


def test_there_are_crash_points_around_every_verb_of_the_store() -> None:
    own = {"open", "close", "migrate", "status"}  # of a process, not of a node
    asked = {name for name, verb in inspect.getmembers(SqliteStore, inspect.iscoroutinefunction)} - own
    asked |= {f"events.{name}" for name, verb in inspect.getmembers(SqliteEventLog, inspect.iscoroutinefunction)}
    applied = {f"apply {act}" for act in ACTS}
    assert set(POINTS) == {f"{side} {verb}" for verb in asked - {"apply"} | applied for side in ("before", "after")}
    assert set(READ_CALLS) == set(READS)


def test_a_life_can_be_judged_by_its_history_alone(tmp_path: Path) -> None:
    outcome = simulate(7)
    with Recorder(tmp_path / "history.jsonl") as recorder:
        recorder.write(*outcome.lines)
    verdict = judge_recording(Recording(read_lines(tmp_path / "history.jsonl")))
    assert (verdict.runs, dict(verdict.coverage.occurrences)) == (outcome.runs, dict(outcome.occurrences))
    assert not verdict.violations


def test_a_seed_lives_the_same_life_again() -> None:
    first, again = simulate(7), simulate(7)
    assert first.lines == again.lines
    assert first.violations == again.violations
    assert first.lines != simulate(8).lines


def test_a_seed_lives_the_same_life_in_another_process() -> None:
    fields = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seed", "7"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert simulate(7).digest in fields.stdout.splitlines()[-1]


def _without_fence(patch: pytest.MonkeyPatch) -> None:
    _edit(patch, "runs_by_fence", always("fence", "="))
    _edit(patch, "end_runs", always("fence", "="))


def _without_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    check = Found._check

    def unchecked(self: Found, guard: Guard) -> tuple[bool, KeyHolder | IdempotencyRecord | None]:
        return (True, None) if isinstance(guard, JobUnchanged) and guard.id in self.jobs else check(self, guard)

    patch.setattr(Found, "_check", unchecked)


def _without_recovery(patch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Janitor, now: object) -> int:
        return 0

    patch.setattr(Janitor, "_return_orphans", nothing)


def _without_durable_cancel(patch: pytest.MonkeyPatch) -> None:
    _edit(patch, "set_stops", keep("stop"))


def _without_slot_advance(patch: pytest.MonkeyPatch) -> None:
    _edit(patch, "move_jobs", keep("next_fire_at"))


def _edit(patch: pytest.MonkeyPatch, statement: str, edit: SqlEdit) -> None:
    patch.setitem(STATEMENTS, statement, edit(STATEMENTS[statement]))


@pytest.mark.parametrize(
    ("revert", "first"),  # which seed is likely to find it; those after it are tried as well
    [
        (_without_fence, 17),
        (_without_compare_and_set, 2),
        (_without_recovery, 0),
        (_without_durable_cancel, 2),
        (_without_slot_advance, 0),
    ],
)
def test_a_reverted_safety_line_is_found(
    revert: Callable[[pytest.MonkeyPatch], None], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    revert(monkeypatch)
    assert any(simulate(seed).violations for seed in range(first, first + len(SEEDS)))
