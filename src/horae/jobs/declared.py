"""Schedules and queue settings that are declared in code: applied when a worker starts, and pruned on request.

Deploys overlap and are rolled back, so a worker cannot simply write what its code declares: an old one that restarts
would undo what a newer one declared. The store keeps every version that was ever seen. A version that is new to the
store is newer than all others and is applied. The newest version is applied again only if its job is gone. Older
versions are ignored, until `prune` makes this code the current one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from horae.core.changes import Change
from horae.core.drafts import Declared
from horae.core.effects import declare
from horae.core.errors import Conflict, Invalid
from horae.core.model import Job
from horae.core.records import Declaration, QueueSettings
from horae.jobs.queues import Queues
from horae.jobs.service import Jobs
from horae.lookup import find_job_by_key, queue_settings
from horae.ports.clock import Clock
from horae.ports.store import Store

NO_OWNER = ""  # of declared queue settings, which all owners share; no owner has this name


class DeclaredOutcome(StrEnum):
    """What was done about a declared schedule or queue, or would be in a dry run."""

    CREATED = "created"
    CHANGED = "changed"
    KEPT = "kept"  # nothing to change
    LEFT = "left"  # to a newer version, or another application
    REFUSED = "refused"
    CANCELLED = "cancelled"  # no longer declared


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredResult:
    """What was done about one key, and why."""

    key: str
    outcome: DeclaredOutcome
    job_id: str | None = None  # job_…
    detail: str = ""


class DeclaredSchedules:
    """Applies the schedules that one application declares."""

    def __init__(self, store: Store, clock: Clock, jobs: Jobs, *, owner: str, app: str) -> None:
        self._store = store
        self._clock = clock
        self._jobs = jobs
        self._owner = owner
        self._app = app

    async def apply(self, declared: Sequence[Declared]) -> list[DeclaredResult]:
        """Apply versions that the store has never seen, and recreate missing jobs."""
        known = _by_key(await self._declarations())
        return [await self._apply_if_newest(each, known.get(each.key, ())) for each in declared]

    async def prune(self, declared: Sequence[Declared], *, dry_run: bool = False) -> list[DeclaredResult]:
        """Apply all that is declared here, and cancel the schedules that are not."""
        known = _by_key(await self._declarations())
        abandoned = sorted(known.keys() - {each.key for each in declared})
        cancelled = [await self._cancel(key, dry_run=dry_run) for key in abandoned]
        if abandoned and not dry_run:
            gone = tuple(version for key in abandoned for version in known[key])
            await self._store.apply([Change(deletes=gone)])
        if dry_run:
            return cancelled + [await self._predict(each, known.get(each.key, ())) for each in declared]
        return cancelled + [await self._put(each) for each in declared]

    async def _apply_if_newest(self, declared: Declared, versions: Sequence[Declaration]) -> DeclaredResult:
        """Apply a schedule, given the versions of its key that were seen, the newest last."""
        if declared.digest not in {version.digest for version in versions}:
            return await self._put(declared)
        if declared.digest != versions[-1].digest:
            return DeclaredResult(
                key=declared.key, outcome=DeclaredOutcome.LEFT, detail="a newer version of it is known"
            )
        there = await self._there(declared.key)
        if there is None:
            return await self._put(declared)
        return DeclaredResult(key=declared.key, outcome=DeclaredOutcome.KEPT, job_id=_shown(there))

    async def _put(self, declared: Declared) -> DeclaredResult:
        """Write the job, then its declaration; after a crash between the two, the next start repeats both."""
        before = await self._there(declared.key)
        try:
            put = await self._jobs.put(declared.draft, owner=self._owner, by=f"app:{self._app}")
        except (Invalid, Conflict) as exc:
            return DeclaredResult(key=declared.key, outcome=DeclaredOutcome.REFUSED, detail=str(exc))
        seen = Declaration(
            owner=self._owner, app=self._app, key=declared.key, digest=declared.digest, seen_at=self._clock.now()
        )
        await self._store.apply([declare(seen)])
        if put.created:
            outcome = DeclaredOutcome.CREATED
        elif before is not None and before.revision == put.job.revision:
            outcome = DeclaredOutcome.KEPT
        else:
            outcome = DeclaredOutcome.CHANGED
        return DeclaredResult(key=declared.key, outcome=outcome, job_id=_shown(put.job))

    async def _predict(self, declared: Declared, versions: Sequence[Declaration]) -> DeclaredResult:
        there = await self._there(declared.key)
        if there is None:
            return DeclaredResult(key=declared.key, outcome=DeclaredOutcome.CREATED)
        same = bool(versions) and versions[-1].digest == declared.digest
        outcome = DeclaredOutcome.KEPT if same else DeclaredOutcome.CHANGED
        return DeclaredResult(key=declared.key, outcome=outcome, job_id=_shown(there))

    async def _cancel(self, key: str, *, dry_run: bool) -> DeclaredResult:
        """Cancel the job of a key that is no longer declared; its current run may finish."""
        others = [each.app for each in await self._store.records(Declaration, owner=self._owner) if each.key == key]
        taken_over_by = next((app for app in others if app != self._app), None)
        if taken_over_by is not None:
            return DeclaredResult(
                key=key, outcome=DeclaredOutcome.LEFT, detail=f"the application {taken_over_by} declares it"
            )
        there = await self._there(key)
        if there is None:
            return DeclaredResult(key=key, outcome=DeclaredOutcome.CANCELLED, detail="its job was gone already")
        if not dry_run:
            await self._jobs.cancel(there.id, keep_running=True, owner=self._owner)
        return DeclaredResult(key=key, outcome=DeclaredOutcome.CANCELLED, job_id=_shown(there))

    async def _there(self, key: str) -> Job | None:
        return await find_job_by_key(self._store, self._owner, key)

    async def _declarations(self) -> list[Declaration]:
        return [each for each in await self._store.records(Declaration, owner=self._owner) if each.app == self._app]


class DeclaredQueues:
    """Applies the queue settings that one application declares; the applications share the versions of a queue."""

    def __init__(self, store: Store, clock: Clock, *, app: str) -> None:
        self._store = store
        self._clock = clock
        self._app = app

    async def apply(self, declared: Sequence[QueueSettings]) -> list[DeclaredResult]:
        """Write the settings of versions that the store has never seen; what people set later stays."""
        known = _by_key(await self._store.records(Declaration, owner=NO_OWNER))
        return [await self._apply_if_new(each, known.get(each.queue, ())) for each in declared]

    async def prune(self, declared: Sequence[QueueSettings], *, dry_run: bool) -> list[DeclaredResult]:
        """Write the settings, even if a newer version of the code has declared others."""
        return [await self._put(each, dry_run=dry_run) for each in declared]

    async def _apply_if_new(self, declared: QueueSettings, versions: Sequence[Declaration]) -> DeclaredResult:
        if _digest(declared) not in {version.digest for version in versions}:
            return await self._put(declared)
        newest = versions[-1]
        if newest.digest == _digest(declared):
            return DeclaredResult(key=declared.queue, outcome=DeclaredOutcome.KEPT)
        detail = f"a newer version of {newest.app} declares other settings"
        return DeclaredResult(key=declared.queue, outcome=DeclaredOutcome.LEFT, detail=detail)

    async def _put(self, declared: QueueSettings, *, dry_run: bool = False) -> DeclaredResult:
        """Write the settings, then their declaration; after a crash between the two, the next start repeats both."""
        before = await queue_settings(self._store, declared.queue)
        changed = before.concurrency != declared.concurrency
        outcome = DeclaredOutcome.CHANGED if changed else DeclaredOutcome.KEPT
        if not dry_run:
            if changed:
                await Queues(self._store, self._clock).set(declared, fields=("concurrency",))
            seen = Declaration(
                owner=NO_OWNER,
                app=self._app,
                key=declared.queue,
                digest=_digest(declared),
                seen_at=self._clock.now(),
            )
            await self._store.apply([declare(seen)])
        return DeclaredResult(key=declared.queue, outcome=outcome)


def _digest(settings: QueueSettings) -> str:
    return f"concurrency={settings.concurrency}"


def _by_key(declarations: Sequence[Declaration]) -> dict[str, list[Declaration]]:
    """Return the versions of each key, the newest last."""
    found: dict[str, list[Declaration]] = {}
    for each in sorted(declarations, key=lambda declaration: declaration.seen_at):
        found.setdefault(each.key, []).append(each)
    return found


def _shown(job: Job) -> str:
    return f"job_{job.id}"
