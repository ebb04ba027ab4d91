"""What the archive asks of a store: the runs that ended on a day, their deletion afterwards, and their return."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from horae.archive.reader import Archive
from horae.archive.restore import Restorer
from horae.blobs.folder import FolderFiles
from horae.core.changes import Change, RunRestored
from horae.core.decisions.results import start
from horae.core.model import SHARDS, Attempt, JobId, Outcome, Run, RunId, State
from horae.core.values import replace
from horae.engine.duties.archiving import Archiver
from horae.lookup import find_run
from horae.metrics import Metrics
from horae.ports.reader import RunFilter
from horae.ports.store import Store
from tests import acts
from tests.clocks import ManualClock
from tests.conformance.builders import (
    DAY,
    NOW,
    attempts_of,
    claimed,
    failed,
    given_ended,
    given_node,
    ids,
    new_id,
    one_shot,
    retried,
)

TODAY = NOW.date()
MIDNIGHT = NOW.replace(hour=0, minute=0, second=0, microsecond=0)


async def test_the_runs_of_the_earliest_day_come_in_pages_each_once(store: Store) -> None:
    ends = [MIDNIGHT - DAY + timedelta(hours=n % 5) for n in range(12)]
    old = [(await given_ended(store, one_shot(NOW - 9 * DAY), at=at))[0] for at in ends]
    for at in (MIDNIGHT, NOW):
        await given_ended(store, one_shot(NOW - 9 * DAY), at=at)

    seen: list[Run] = []
    while page := await store.ended(before=TODAY, after=seen[-1] if seen else None, limit=5):
        assert page.day == TODAY - DAY
        seen += page.runs
        if len(page.runs) < 5:
            break

    assert sorted(ids(seen)) == sorted(ids(old))
    assert {run.id: run for run in seen} == dict(await store.runs([run.id for run in old]))


async def test_there_is_no_day_before_the_first(store: Store) -> None:
    assert await store.ended(before=TODAY, limit=5) is None
    await given_ended(store, one_shot(NOW), at=NOW)
    assert await store.ended(before=TODAY, limit=5) is None
    assert (await store.ended(before=TODAY + DAY, limit=5)) is not None


async def test_history_stays_while_there_is_more_of_it_than_was_archived(store: Store) -> None:
    runs = [(await given_ended(store, one_shot(NOW - 3 * DAY), at=NOW - 2 * DAY))[0] for _ in range(3)]
    for known in (0, 2):
        while await store.prune(now=NOW, before=TODAY, limit=10, runs=known):
            pass
        assert len(await store.runs([run.id for run in runs])) == 3
    while await store.prune(now=NOW, before=TODAY, limit=10, runs=3):
        pass
    assert await store.runs([run.id for run in runs]) == {}
    assert await store.ended(before=TODAY, limit=5) is None


async def test_attempts_before_midnight_are_there_when_the_day_of_the_end_is_archived(store: Store) -> None:
    run = one_shot(NOW - 9 * DAY)
    await acts.create(store, [run])
    node = await given_node(store)
    [held] = await claimed(store, node)
    await store.settle([retried(start(held, MIDNIGHT - DAY), MIDNIGHT - DAY - timedelta(minutes=1))])
    [again] = await claimed(store, node)
    await store.settle([failed(start(again, MIDNIGHT), MIDNIGHT - DAY + timedelta(minutes=1))])

    await store.prune(now=NOW, before=TODAY - DAY, limit=10, runs=0)

    assert len(await attempts_of(store, run.id)) == 2


def restored(at: datetime, **changes: object) -> RunRestored:
    """A failed run of last year, with an attempt, that is restored now."""
    ident, ended_at = new_id(), datetime(2020, 5, 5, 12, 0, 0, 17, tzinfo=UTC)
    run = one_shot(ended_at, id=RunId(ident), job_id=JobId(ident))
    run = replace(run, state=State.SUCCEEDED, fence=3, attempt=2, result='{"a":1}', finished_at=ended_at, **changes)
    attempt = Attempt(
        run_id=run.id, number=1, fence=2, node=None, started_at=ended_at, ended_at=ended_at, outcome=Outcome.FAILED
    )
    return RunRestored(run, (attempt,), at)


async def test_a_restored_run_is_as_it_was_and_only_once(store: Store) -> None:
    back = restored(NOW)
    for _ in range(2):
        await store.apply([Change(puts=(back,))])

    assert await find_run(store, back.run.id, owner="ada") == back.run
    assert await attempts_of(store, back.run.id) == list(back.attempts)
    listed = await store.list_runs(RunFilter(owner="ada"), cursor=None, limit=10)
    assert ids(listed.items) == [back.run.id]


async def test_what_is_still_there_is_not_restored_over(store: Store) -> None:
    [run] = await given_ended(store, one_shot(NOW), at=NOW)
    await store.apply([Change(puts=(RunRestored(replace(run, result='"old"'), (), NOW),))])
    assert await find_run(store, run.id, owner=None) == run


async def test_a_restored_run_stays_as_long_as_history_does_and_is_not_archived_again(store: Store) -> None:
    back = restored(NOW)
    await store.apply([Change(puts=(back,))])
    assert await store.ended(before=TODAY + DAY, limit=5) is None
    while await store.prune(now=NOW, before=TODAY, limit=10, runs=0):
        pass
    assert await find_run(store, back.run.id, owner=None) == back.run

    while await store.prune(now=NOW, before=TODAY + DAY, limit=10, runs=0):
        pass

    assert await find_run(store, back.run.id, owner=None) is None
    while await store.prune(now=NOW, before=TODAY + 3 * DAY, limit=10, runs=0):  # attempts may stay two days longer
        pass
    assert await attempts_of(store, back.run.id) == []


async def test_a_restored_dead_letter_can_be_found_among_the_others(store: Store) -> None:
    back = restored(NOW)
    letter = RunRestored(replace(back.run, state=State.FAILED), back.attempts, NOW)
    await store.apply([Change(puts=(letter,))])
    listed = await store.list_runs(RunFilter(owner="ada", dead_letters=True), cursor=None, limit=10)
    assert ids(listed.items) == [letter.run.id]


async def test_a_day_goes_through_the_archive_and_comes_back_as_it_was(store: Store, tmp_path: Path) -> None:
    ends = [MIDNIGHT - 2 * DAY + timedelta(hours=hour) for hour in (0, 5, 23)]
    runs = [run for at in ends for run in await given_ended(store, *(one_shot(NOW - 9 * DAY) for _ in range(4)), at=at)]
    await acts.create(store, [broken := one_shot(NOW - 9 * DAY, params='{"a": [1, 2]}')])
    [held] = await claimed(store, await given_node(store))
    await store.settle([failed(start(held, ends[1]), ends[1])])
    before = dict(await store.runs([*(run.id for run in runs), broken.id]))
    attempts = await attempts_of(store, broken.id)
    files, clock = FolderFiles(tmp_path / "archive"), ManualClock(NOW)

    archiver = Archiver(store, store.blobs, files, clock, Metrics(), keep=DAY, shards=lambda: range(SHARDS))
    while await archiver.step():
        pass

    assert await store.runs(list(before)) == {}
    archive = Archive(files)
    assert list(await archive.days()) == [TODAY - 2 * DAY]
    done = await Restorer(archive, store, store.blobs, clock).day(TODAY - 2 * DAY, owner=None, cursor=None)
    assert (done.runs, done.cursor) == (13, None)
    assert dict(await store.runs(list(before))) == {
        ident: replace(run, spec=replace(run.spec, params=run.spec.params.replace(": ", ":").replace(", ", ",")))
        for ident, run in before.items()
    }
    assert await attempts_of(store, broken.id) == attempts
