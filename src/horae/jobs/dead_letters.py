"""Dead letters: runs that failed for good, until they are requeued or discarded."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from horae.core.decisions.new_runs import requeued
from horae.core.effects import resolve_letter
from horae.core.errors import Conflict, Invalid
from horae.core.ids import NewId
from horae.core.model import DISCARDED, Run, RunId, State
from horae.core.records import IdempotencyRecord
from horae.core.values import replace
from horae.jobs.idempotency import Issue
from horae.jobs.prepare import Preparation
from horae.lookup import get_run
from horae.ports.clock import Clock
from horae.ports.permits import Permit, permit_all
from horae.ports.reader import RunFilter
from horae.ports.store import Store

MAX_LETTERS = 10_000  # resolved by one call
CHUNK = 500  # letters per read and write
MAX_LOOK = 6_000  # letters that one read looks at

Patch = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The dead letters to resolve: those with these ids, or without ids those that match a filter."""

    which: RunFilter  # with `dead_letters`; for ids only its owner counts
    ids: Sequence[RunId] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How many dead letters a call matched and resolved."""

    matched: int
    done: int
    remaining: int  # that still match, counted up to 10,000


class DeadLetters:
    """Requeues and discards dead letters."""

    def __init__(self, *, store: Store, clock: Clock, preparation: Preparation, new_id: NewId) -> None:
        self._store = store
        self._clock = clock
        self._preparation = preparation
        self._new_id = new_id

    # --- many

    async def discard(self, selection: Selection) -> Tally:
        """Resolve letters without a new run."""
        matched = done = 0
        async for letters in self._chunks(selection):
            now = self._clock.now()
            refusals = await self._store.apply([resolve_letter(letter, None, now=now) for letter in letters])
            matched += len(letters)
            done += refusals.count(None)
        return Tally(matched=matched, done=done, remaining=await self._remaining(selection, 0))

    async def requeue(
        self, selection: Selection, patch: Patch | None, *, by: str, permit: Permit = permit_all
    ) -> Tally:
        """Resolve letters by new runs; `patch` is merged into their parameters.

        Letters whose patched parameters do not fit their task stay; raises Invalid when none fits, and what `permit`
        raises before any letter is requeued.
        """
        matched = done = 0
        unfit: list[Invalid] = []
        async for letters in self._chunks(await self._permitted(selection, permit)):
            matched += len(letters)
            replaced, refused = await self._replace(letters, patch, by)
            done += replaced
            unfit += refused
        if matched and len(unfit) == matched:
            raise unfit[0]
        return Tally(matched=matched, done=done, remaining=await self._remaining(selection, len(unfit)))

    async def requeue_many(self, letters: Sequence[Run], *, by: str) -> int:
        """Resolve letters by new runs, and return how many; those that another request resolved are not counted."""
        return (await self._replace(letters, None, by))[0]

    async def find(self, ids: Sequence[RunId], *, owner: str | None) -> Sequence[Run]:
        """Return those of the runs that are dead letters; `owner` None means of every owner."""
        ended = (await self._store.runs(ids, ended=True)).values()
        return [run for run in ended if owner in (None, run.owner) and _is_letter(run)]

    async def _replace(self, letters: Sequence[Run], patch: Patch | None, by: str) -> tuple[int, list[Invalid]]:
        """Resolve letters by new runs; return how many, and what is wrong with the parameters of the others."""
        successors = [await self._successor(letter, patch, by) for letter in letters]
        now = self._clock.now()
        changes = [
            resolve_letter(letter, successor, now=now)
            for letter, successor in zip(letters, successors, strict=True)
            if not isinstance(successor, Invalid)
        ]
        done = (await self._store.apply(changes)).count(None)
        return done, [successor for successor in successors if isinstance(successor, Invalid)]

    async def _permitted(self, selection: Selection, permit: Permit) -> Selection:
        """Return the same letters by their ids, so that none comes in after the last one was permitted."""
        ids: list[RunId] = []
        async for letters in self._chunks(selection):
            for letter in letters:
                permit(letter.spec)
            ids += [letter.id for letter in letters]
        return Selection(which=selection.which, ids=ids)

    async def _successor(self, letter: Run, patch: Patch | None, by: str) -> Run | Invalid:
        try:
            return await self._requeued(letter, patch, by)
        except Invalid as exc:
            return exc

    async def _requeued(self, letter: Run, patch: Patch | None, by: str) -> Run:
        """Return the run that replaces a letter; raises Invalid."""
        run = replace(requeued(letter, now=self._clock.now(), new_id=self._new_id), created_by=by)
        return run if patch is None else await self._preparation.with_patched_params(run, patch)

    async def _chunks(self, selection: Selection) -> AsyncIterator[Sequence[Run]]:
        """Yield the selected letters in chunks, at most MAX_LETTERS."""
        if selection.ids is not None:
            ids = list(dict.fromkeys(selection.ids))
            for start in range(0, len(ids), CHUNK):
                if letters := await self.find(ids[start : start + CHUNK], owner=selection.which.owner):
                    yield letters
            return
        cursor: str | None = None
        room = MAX_LETTERS
        while room:
            limit = min(room, CHUNK)
            page = await self._store.list_runs(selection.which, cursor=cursor, limit=limit, look=MAX_LOOK)
            if page.items:
                yield page.items
            room -= len(page.items)
            cursor = page.cursor
            if cursor is None:
                return

    async def _remaining(self, selection: Selection, left: int) -> int:
        if selection.ids is not None:
            return left
        return sum(group.count for group in await self._store.dead_letter_groups(selection.which))

    # --- one

    async def retry(
        self,
        run_id: RunId,
        patch: Patch | None,
        *,
        owner: str | None,
        by: str,
        issue: Issue[Run] | None = None,
        permit: Permit = permit_all,
    ) -> Run | IdempotencyRecord:
        """Resolve one letter by a new run; raises Conflict when the run is not a dead letter."""
        letter = await get_run(self._store, run_id, owner=owner)
        permit(letter.spec)
        _refuse_no_letter(letter)
        successor = await self._requeued(letter, patch, by)
        record = None if issue is None else await issue(successor)
        [refusal] = await self._store.apply([resolve_letter(letter, successor, record, now=self._clock.now())])
        if refusal is not None and isinstance(refusal.found, IdempotencyRecord):
            return refusal.found
        if refusal is not None:
            _refuse_no_letter(await get_run(self._store, run_id, owner=owner))
            raise Conflict(f"run_{run_id} is being resolved by another request; read it again")
        return successor


def _is_letter(run: Run) -> bool:
    return run.state is State.FAILED and run.resolution is None


def _refuse_no_letter(run: Run) -> None:
    if run.state is not State.FAILED:
        raise Conflict(f"run_{run.id} is {run.state}; only a failed run can be tried again this way")
    if run.resolution == DISCARDED:
        raise Conflict(f"run_{run.id} was discarded; run its job again with /run")
    if run.resolution is not None:
        raise Conflict(f"run_{run.id} was already tried again, as run_{run.resolution}")
