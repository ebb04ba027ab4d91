"""Dead letters: runs that failed for good, until somebody requeues or discards them."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from horae.core.decisions.new_runs import requeued
from horae.core.effects import resolve_letter
from horae.core.errors import Conflict, Invalid, NotFound
from horae.core.ids import NewId
from horae.core.merge_patch import merge_patch
from horae.core.model import DISCARDED, Run, RunId, State
from horae.core.records import IdempotencyRecord
from horae.core.values import replace
from horae.jobs.idempotency import Issue
from horae.jobs.lookup import find_run
from horae.jobs.params import Parameters
from horae.jobs.task_catalog import TaskBook
from horae.ports.clock import Clock
from horae.ports.reader import ErrorGroup, Listing, RunFilter
from horae.ports.store import Store
from horae.secrets.sealer import Sealer

MAX_LETTERS = 10_000  # that one call resolves
CHUNK = 500  # that are read and resolved in one go

Patch = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which dead letters an act is about: those with these ids, or without ids those that a filter finds."""

    which: RunFilter  # with `dead_letters`; of its fields only the owner holds for ids
    ids: Sequence[RunId] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What an act on many dead letters did."""

    matched: int
    done: int
    remaining: int  # letters that still match, counted up to 10,000


class DeadLetters:
    """Lists dead letters and resolves them."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        tasks: TaskBook,
        parameters: Parameters,
        new_id: NewId,
        sealer: Sealer | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._tasks = tasks
        self._parameters = parameters
        self._new_id = new_id
        self._sealer = sealer or Sealer()

    async def list(self, which: RunFilter, *, cursor: str | None, limit: int) -> Listing[Run]:
        """A page of dead letters, by due time, latest first."""
        return await self._store.list_runs(which, cursor=cursor, limit=limit)

    async def groups(self, which: RunFilter) -> Sequence[ErrorGroup]:
        """Dead letters that failed alike, the most frequent first."""
        return await self._store.dead_letter_groups(which)

    # --- many

    async def discard(self, selection: Selection) -> Tally:
        """Give letters up: nothing replaces them."""
        matched = done = 0
        async for letters in self._chunks(selection):
            now = self._clock.now()
            refusals = await self._store.apply([resolve_letter(letter, None, now=now) for letter in letters])
            matched += len(letters)
            done += refusals.count(None)
        return Tally(matched=matched, done=done, remaining=await self._remaining(selection, 0))

    async def requeue(
        self, selection: Selection, patch: Patch | None, *, by: str, refuse: Callable[[str], None] = lambda task: None
    ) -> Tally:
        """Run letters once more, each as a new run; a patch is merged into their parameters.

        Letters whose parameters would no longer fit their task stay; when that are all of them, Invalid is raised.
        `refuse` raises for a task that whoever asks may not run.
        """
        matched = done = 0
        unfit: list[Invalid] = []
        async for letters in self._chunks(selection):
            matched += len(letters)
            for task in {letter.spec.task for letter in letters}:
                refuse(task)
            successors = [await self._successor(letter, patch, by) for letter in letters]
            unfit += [successor for successor in successors if isinstance(successor, Invalid)]
            now = self._clock.now()
            changes = [
                resolve_letter(letter, successor, now=now)
                for letter, successor in zip(letters, successors, strict=True)
                if not isinstance(successor, Invalid)
            ]
            done += (await self._store.apply(changes)).count(None)
        if matched and len(unfit) == matched:
            raise unfit[0]
        return Tally(matched=matched, done=done, remaining=await self._remaining(selection, len(unfit)))

    async def _successor(self, letter: Run, patch: Patch | None, by: str) -> Run | Invalid:
        try:
            return await self._requeued(letter, patch, by)
        except Invalid as exc:
            return exc

    async def _requeued(self, letter: Run, patch: Patch | None, by: str) -> Run:
        """The run that replaces a letter."""
        run = replace(requeued(letter, now=self._clock.now(), new_id=self._new_id), created_by=by)
        if patch is None:
            return run
        before = msgspec.json.decode(await self._parameters.of(letter.spec))
        params = msgspec.json.encode(merge_patch(before, patch)).decode()
        sealed = letter.spec.secrets
        self._tasks.check(letter.spec.task, params, None if sealed is None else self._sealer.open(sealed))
        kept, blob = await self._parameters.keep(params, run.id)
        return replace(run, spec=replace(run.spec, params=kept, params_blob=blob))

    async def _chunks(self, selection: Selection) -> AsyncIterator[Sequence[Run]]:
        """The selected letters, some at a time, and no more than a call may resolve."""
        if selection.ids is not None:
            ids = list(dict.fromkeys(selection.ids))
            for start in range(0, len(ids), CHUNK):
                if letters := await self._letters(ids[start : start + CHUNK], selection.which.owner):
                    yield letters
            return
        cursor: str | None = None
        for _ in range(MAX_LETTERS // CHUNK):
            page = await self._store.list_runs(selection.which, cursor=cursor, limit=CHUNK)
            if page.items:
                yield page.items
            cursor = page.cursor
            if cursor is None:
                return

    async def _letters(self, ids: Sequence[RunId], owner: str | None) -> Sequence[Run]:
        """Those of the runs that are dead letters."""
        ended = (await self._store.runs(ids, ended=True)).values()
        return [run for run in ended if owner in (None, run.owner) and _is_letter(run)]

    async def _remaining(self, selection: Selection, left: int) -> int:
        if selection.ids is not None:
            return left
        return sum(group.count for group in await self._store.dead_letter_groups(selection.which))

    # --- one

    async def retry(
        self, run_id: RunId, patch: Patch | None, *, owner: str | None, by: str, issue: Issue[Run] | None = None
    ) -> Run | IdempotencyRecord:
        """Run a failed run once more, as a new one that takes its place; raises Conflict when it is no dead letter."""
        letter = await self._find(run_id, owner)
        _refuse_no_letter(letter)
        successor = await self._requeued(letter, patch, by)
        record = None if issue is None else await issue(successor)
        [refusal] = await self._store.apply([resolve_letter(letter, successor, record, now=self._clock.now())])
        if refusal is not None and isinstance(refusal.found, IdempotencyRecord):
            return refusal.found
        if refusal is not None:
            _refuse_no_letter(await self._find(run_id, owner))
            raise Conflict(f"run_{run_id} is being resolved by somebody else; look at it again")
        return successor

    async def _find(self, run_id: RunId, owner: str | None) -> Run:
        run = await find_run(self._store, run_id, owner=owner)
        if run is None:
            raise NotFound("run", f"run_{run_id}")
        return run


def _is_letter(run: Run) -> bool:
    return run.state is State.FAILED and run.resolution is None


def _refuse_no_letter(run: Run) -> None:
    if run.state is not State.FAILED:
        raise Conflict(f"run_{run.id} is {run.state}; only a failed run can be tried again this way")
    if run.resolution == DISCARDED:
        raise Conflict(f"run_{run.id} was discarded; run its job again with /run")
    if run.resolution is not None:
        raise Conflict(f"run_{run.id} was already tried again, as run_{run.resolution}")
