"""Schedules that are declared in code: brought to the store when a worker starts, and taken out of it on request.

Deploys overlap and are rolled back, so a worker cannot simply write what its code says: an old one that restarts would
undo what a newer one declared. The store keeps every version of a schedule that was ever seen. One that is new to it is
newer than all the others and is applied. The newest one is applied again only when its job is gone. Older ones are left
alone, until `prune` says that this code is what holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from horae.core.changes import Change
from horae.core.effects import declare
from horae.core.errors import Conflict, Invalid
from horae.core.model import Job
from horae.core.records import Declaration
from horae.jobs.declared import Declared
from horae.jobs.lookup import find_job_by_key
from horae.jobs.service import Jobs
from horae.ports.clock import Clock
from horae.ports.store import Store


class Outcome(StrEnum):
    """What was done about a declared schedule, or would be."""

    CREATED = "created"
    CHANGED = "changed"
    KEPT = "kept"  # it is so already
    LEFT = "left"  # a newer version, or another application, has the say
    REFUSED = "refused"
    CANCELLED = "cancelled"  # no longer declared


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was done about one key, and why."""

    key: str
    outcome: Outcome
    job_id: str | None = None  # job_…
    detail: str = ""


class Declaring:
    """Brings the schedules of one application to the store."""

    def __init__(self, store: Store, clock: Clock, jobs: Jobs, *, owner: str, app: str) -> None:
        self._store = store
        self._clock = clock
        self._jobs = jobs
        self._owner = owner
        self._app = app

    async def apply(self, declared: Sequence[Declared]) -> list[Verdict]:
        """Apply what is newer than anything that the store has seen, and what is missing."""
        known = _by_key(await self._declarations())
        return [await self._apply_if_newest(each, known.get(each.key, ())) for each in declared]

    async def prune(self, declared: Sequence[Declared], *, dry_run: bool = False) -> list[Verdict]:
        """Make the store hold exactly what is declared here: the rest is cancelled and forgotten."""
        known = _by_key(await self._declarations())
        abandoned = sorted(known.keys() - {each.key for each in declared})
        verdicts = [await self._cancel(key, dry_run=dry_run) for key in abandoned]
        if abandoned and not dry_run:
            gone = tuple(version for key in abandoned for version in known[key])
            await self._store.apply([Change(deletes=gone)])
        held = [await (self._foresee(each) if dry_run else self._put(each, renew=True)) for each in declared]
        return verdicts + held

    async def _apply_if_newest(self, declared: Declared, versions: Sequence[Declaration]) -> Verdict:
        """`versions` are those that were seen of this key, the newest last."""
        if declared.digest not in {version.digest for version in versions}:
            return await self._put(declared)
        if declared.digest != versions[-1].digest:
            return Verdict(key=declared.key, outcome=Outcome.LEFT, detail="a newer version of it is known")
        there = await self._there(declared.key)
        if there is None:
            return await self._put(declared)
        return Verdict(key=declared.key, outcome=Outcome.KEPT, job_id=_shown(there))

    async def _put(self, declared: Declared, *, renew: bool = False) -> Verdict:
        """Write the job, then that it was seen: a crash between the two is mended by doing it again."""
        before = await self._there(declared.key)
        try:
            put = await self._jobs.put(declared.draft, owner=self._owner, by=f"app:{self._app}")
        except (Invalid, Conflict) as exc:
            return Verdict(key=declared.key, outcome=Outcome.REFUSED, detail=str(exc))
        seen = Declaration(
            owner=self._owner, app=self._app, key=declared.key, digest=declared.digest, seen_at=self._clock.now()
        )
        await self._store.apply([declare(seen, renew=renew)])
        if put.created:
            outcome = Outcome.CREATED
        else:
            outcome = Outcome.KEPT if before is not None and before.revision == put.job.revision else Outcome.CHANGED
        return Verdict(key=declared.key, outcome=outcome, job_id=_shown(put.job))

    async def _foresee(self, declared: Declared) -> Verdict:
        there = await self._there(declared.key)
        if there is None:
            return Verdict(key=declared.key, outcome=Outcome.CREATED)
        versions = _by_key(await self._declarations()).get(declared.key, [])
        same = bool(versions) and versions[-1].digest == declared.digest
        return Verdict(key=declared.key, outcome=Outcome.KEPT if same else Outcome.CHANGED, job_id=_shown(there))

    async def _cancel(self, key: str, *, dry_run: bool) -> Verdict:
        """End the job of a key that is declared no longer; an occurrence that runs may finish."""
        others = [each.app for each in await self._store.records(Declaration, owner=self._owner) if each.key == key]
        taken_over_by = next((app for app in others if app != self._app), None)
        if taken_over_by is not None:
            return Verdict(key=key, outcome=Outcome.LEFT, detail=f"the application {taken_over_by} declares it")
        there = await self._there(key)
        if there is None:
            return Verdict(key=key, outcome=Outcome.CANCELLED, detail="its job was gone already")
        if not dry_run:
            await self._jobs.cancel(there.id, keep_running=True, owner=self._owner)
        return Verdict(key=key, outcome=Outcome.CANCELLED, job_id=_shown(there))

    async def _there(self, key: str) -> Job | None:
        return await find_job_by_key(self._store, self._owner, key)

    async def _declarations(self) -> list[Declaration]:
        return [each for each in await self._store.records(Declaration, owner=self._owner) if each.app == self._app]


def _by_key(declarations: Sequence[Declaration]) -> dict[str, list[Declaration]]:
    """The versions of each key, the newest last."""
    found: dict[str, list[Declaration]] = {}
    for each in sorted(declarations, key=lambda declaration: declaration.seen_at):
        found.setdefault(each.key, []).append(each)
    return found


def _shown(job: Job) -> str:
    return f"job_{job.id}"
