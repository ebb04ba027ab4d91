"""The changes that each use case writes by `Store.apply`, and the side effects of the end of a run."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from horae.core.changes import (
    Absent,
    BackfillUnchanged,
    Change,
    GateLeft,
    GatesOf,
    Guard,
    JobMoved,
    JobNotCancelled,
    JobUnchanged,
    KeyFree,
    LetterOpen,
    LetterResolved,
    NewEvent,
    NodeUnchanged,
    OneShotRevised,
    Parked,
    QueueUnchanged,
    RequestNew,
    RunLive,
    RunUnchanged,
    StopRequested,
)
from horae.core.decisions.firing import Firing, Page, skip_of
from horae.core.decisions.release import Rival, blocks_key
from horae.core.events import EventKind
from horae.core.lifecycle import has_begun
from horae.core.model import DISCARDED, Backfill, Job, JobId, JobStatus, Node, Reason, Run, Skip, State
from horae.core.records import Declaration, IdempotencyRecord, KeyHolder, QueueSettings, ScheduleTrail, TaskSchema
from horae.core.schedule.evaluate import SlotRange
from horae.core.schedule.trail import extended, trail_of
from horae.core.signals import Kind, Signal
from horae.core.values import Value, replace

T = TypeVar("T")
OVER = frozenset({JobStatus.FINISHED, JobStatus.CANCELLED})
_NEVER = datetime.max.replace(tzinfo=UTC)

# --- creating ---------------------------------------------------------------------------------------------------------


def create_job(firing: Firing, record: IdempotencyRecord | None = None) -> Change:
    """Create a recurring job with the runs of its first firing."""
    job = fired_job(firing)
    holder = _key_of(job.owner, job.spec.key, job.id)
    return Change(
        guards=(*map(RequestNew, _optional(record)), Absent(job.id), *map(KeyFree, holder)),
        puts=(job, *holder, *_fired(firing), *_optional(record)),
        events=(NewEvent(EventKind.JOB_CREATED, job.owner, job.id),),
        signals=(*due_signals(firing.runs), *plan_signals(firing.plan_at)),
    )


def create_one_shot(run: Run, record: IdempotencyRecord | None = None) -> Change:
    """Create a one-shot job: its run, and its key if it has one."""
    holder = _key_of(run.owner, run.spec.key, run.job_id)
    return Change(
        guards=(*map(RequestNew, _optional(record)), Absent(run.id), *map(KeyFree, holder)),
        puts=(run, *holder, *_optional(record)),
        events=(NewEvent(EventKind.JOB_CREATED, run.owner, run.job_id),),
        signals=due_signals([run]),
    )


def create_manual_run(run: Run, record: IdempotencyRecord | None = None) -> Change:
    """Create a run outside the schedule of a job, unless the job is cancelled."""
    return Change(
        guards=(*map(RequestNew, _optional(record)), Absent(run.id), JobNotCancelled(run.job_id)),
        puts=(run, *_optional(record)),
        signals=due_signals([run]),
    )


def begin_backfill(backfill: Backfill, record: IdempotencyRecord | None = None) -> Change:
    """Create a backfill, unless its job is cancelled."""
    return Change(
        guards=(*map(RequestNew, _optional(record)), JobNotCancelled(backfill.job_id)),
        puts=(backfill, *_optional(record)),
        signals=plan_signals(backfill.plan_at),
    )


def keep_record(record: IdempotencyRecord) -> Change:
    """Store the answer to a request."""
    return Change(guards=(RequestNew(record),), puts=(record,))


# --- planning ---------------------------------------------------------------------------------------------------------


def fired_job(firing: Firing) -> Job:
    """The job after its firing."""
    return replace(firing.job, next_fire_at=firing.next_fire_at, plan_at=firing.plan_at, status=firing.status)


def fire_job(firing: Firing) -> Change:
    """Write a firing, unless another planner or a change of the job was first."""
    job = firing.job
    return Change(
        guards=(JobUnchanged.of(job),),
        deletes=_key_of(job.owner, job.spec.key, job.id) if firing.status in OVER else (),
        puts=(JobMoved(job.id, firing.next_fire_at, firing.plan_at, firing.status), *_fired(firing)),
        events=_event(firing.event, job.owner, job.id),
        signals=(*due_signals(firing.runs), *plan_signals(firing.plan_at)),
    )


def fill_backfill(page: Page) -> Change:
    """Turn a page of a backfill into runs, unless another planner was first; the last page ends it."""
    backfill = page.backfill
    ends = page.start is None
    moved = backfill if page.start is None else replace(backfill, start=page.start, plan_at=page.plan_at)
    return Change(
        guards=(BackfillUnchanged(backfill.id, backfill.start),),
        deletes=(backfill,) if ends else (),
        puts=(*page.runs, *page.skips) if ends else (moved, *page.runs, *page.skips),
        signals=(*due_signals(page.runs), *plan_signals(None if ends else page.plan_at)),
    )


# --- changing jobs ----------------------------------------------------------------------------------------------------


class Planned(Value, frozen=True, kw_only=True):
    """The runs and skips of future slots, which are retracted when the schedule changes or stops."""

    waiting: tuple[Run, ...] = ()
    held: tuple[Run, ...] = ()  # by nodes, and not started as far as the store knows
    skips: tuple[Skip, ...] = ()

    @classmethod
    def among(cls, runs: Iterable[Run], skips: Iterable[Skip], *, after: datetime) -> "Planned":
        """Select what is due later than `after` and has not begun."""
        ahead = [run for run in runs if run.due_at > after and not has_begun(run)]
        return cls(
            waiting=tuple(run for run in ahead if run.state is State.SCHEDULED),
            held=tuple(run for run in ahead if run.state is State.CLAIMED),
            skips=tuple(skip for skip in skips if skip.start > after),
        )

    @property
    def first_slot(self) -> datetime | None:
        """The earliest slot that is open again once this is retracted."""
        slots = [run.slot for run in self.waiting if run.slot is not None] + [skip.start for skip in self.skips]
        return min(slots, default=None)


def change_job(
    before: Job,
    after: Job,
    planned: Planned,
    *,
    trail: ScheduleTrail | None,
    gaps: Sequence[Skip] = (),
    stop: Reason | None,
    event: EventKind | None,
) -> Change:
    """Write a new version of a recurring job, retract what was planned, and send the stop request `stop` to nodes.

    `trail` is the stored one of the job, if there is one; `gaps` are slots in clock changes that are still to be told.
    """
    stopped = planned.held if stop is not None else ()
    return Change(
        guards=(JobUnchanged.of(before), *map(RunUnchanged.of, (*planned.waiting, *stopped))),
        deletes=(
            *planned.waiting,
            *planned.skips,
            *(_key_of(after.owner, after.spec.key, after.id) if after.status in OVER else ()),
        ),
        puts=(
            after,
            extended(trail_of(before, trail), before, after),
            *gaps,
            *_given_up(before, after, planned.waiting),
            *(StopRequested(run.id, _stronger(run.stop, stop)) for run in stopped if stop is not None),
        ),
        gates_left=_gates_left(planned.waiting, after.updated_at),
        events=_event(event, after.owner, after.id),
        signals=(*plan_signals(after.plan_at), *_stop_signals(stopped)),
    )


def _given_up(before: Job, after: Job, retracted: Iterable[Run]) -> tuple[Skip, ...]:
    """The slots before the change whose runs still waited for their jitter, unless the job is rewound to them."""
    opens_at = after.next_fire_at or _NEVER
    slots = [run.slot for run in retracted if run.slot is not None and run.slot <= after.updated_at]
    return tuple(skip_of(before, SlotRange(slot, slot, 1), Reason.CANCELLED) for slot in slots if slot < opens_at)


def rewound(job: Job, planned: Planned) -> Job:
    """Return the job at the first slot that is open again."""
    times = [moment for moment in (job.next_fire_at, planned.first_slot) if moment is not None]
    return replace(job, next_fire_at=min(times, default=None))


def change_one_shot(before: Run, after: Run, *, event: EventKind | None) -> Change:
    """Write a new version of a one-shot that still waits; it may let others of its gate pass."""
    return Change(
        guards=(RunUnchanged.of(before),),
        puts=(OneShotRevised(after),),
        gates_left=_gates_left([before], before.wake_at),
        events=_event(event, after.owner, after.job_id),
        signals=due_signals([after]),
    )


# --- stopping runs ----------------------------------------------------------------------------------------------------


def request_stop(run: Run, reason: Reason) -> Change:
    """Ask the node that holds the run to stop it."""
    return Change(
        guards=(RunUnchanged.of(run),),
        puts=(StopRequested(run.id, _stronger(run.stop, reason)),),
        signals=_stop_signals([run]),
    )


def retractable(held: Sequence[Run], planned: Sequence[Run], now: datetime) -> list[Run]:
    """Select the held runs of a paused job that can be retracted: not started, not due, and no later slot has a run.

    A cancelled run is not retracted, because its slot must not open again. A job can be rewound to a slot only if no
    later slot is accounted for, so the latest run is retracted first.
    """
    mine = {run.id for run in held}
    last = max((run.slot for run in planned if run.id not in mine and run.slot is not None), default=None)
    taken: list[Run] = []
    for run in sorted(held, key=lambda run: run.slot or run.due_at, reverse=True):
        cancelled = run.stop is Reason.CANCELLED
        open_again = run.state is State.CLAIMED and run.due_at > now and run.slot is not None and not cancelled
        if open_again and (last is None or (run.slot is not None and run.slot > last)):
            taken.append(run)
        else:
            last = max(run.slot or run.due_at, last or run.due_at)
    return taken


def retract_held(job: Job, runs: Sequence[Run], *, now: datetime, limited: bool) -> Change:
    """Retract runs of a paused job that their node has not started, so that their slots are open again.

    If their queue is `limited`, workers are signalled to claim other runs instead.
    """
    slots = [run.slot for run in runs if run.slot is not None]
    times = slots if job.next_fire_at is None else [job.next_fire_at, *slots]
    return Change(
        guards=(JobUnchanged.of(job), *map(RunUnchanged.of, runs)),
        deletes=tuple(runs),
        puts=(JobMoved(job.id, min(times), job.plan_at, job.status),),
        gates_left=_gates_left(runs, now),
        signals=(Signal(kind=Kind.DUE, at=now),) if limited else (),
    )


def park(run: Run, rival: Rival) -> Change:
    """Keep a blocked run from being claimed for as long as the rival is ahead of it."""
    ahead: Guard = LetterOpen(rival.id) if rival.failed else RunLive(rival.id)
    return Change(guards=(RunUnchanged.of(run), ahead), puts=(Parked(run.id),))


def resolve_letter(
    letter: Run, successor: Run | None, record: IdempotencyRecord | None = None, *, now: datetime
) -> Change:
    """Resolve a dead letter by the run that replaces it, at the same place in their gate, or discard it."""
    unblocks = successor is None and blocks_key(letter)
    return Change(
        guards=(*map(RequestNew, _optional(record)), LetterOpen(letter.id)),
        puts=(
            LetterResolved(letter, DISCARDED if successor is None else successor.id),
            *_optional(successor),
            *_optional(record),
        ),
        gates_left=_gates_left([letter], now) if unblocks else (),
        signals=due_signals(_optional(successor)),
    )


# --- records and nodes ------------------------------------------------------------------------------------------------


def set_queue(before: QueueSettings, after: QueueSettings) -> Change:
    """Write the settings of a queue, and signal workers, which may have more to claim now."""
    return Change(guards=(QueueUnchanged(before),), puts=(after,), signals=(Signal(kind=Kind.DUE),))


def declare(declaration: Declaration) -> Change:
    """Store a version of a declared schedule, or the time when it was seen again."""
    return Change(puts=(declaration,))


def register_node(node: Node) -> Change:
    """Register a node and its tasks."""
    tasks = tuple(TaskSchema(name=name, schema=schema) for name, schema in node.tasks.items())
    return Change(puts=(node, *tasks))


def unregister_node(node: Node) -> Change:
    """Unregister a node that shuts down, with the gates that it holds."""
    return Change(deletes=(GatesOf(node.id), node))


def remove_dead_node(node: Node) -> Change:
    """Remove a node unless it has sent a heartbeat since; it can no longer claim or send heartbeats."""
    return Change(guards=(NodeUnchanged(node.id, node.beat_at),), deletes=(node,))


# --- the end of a run -------------------------------------------------------------------------------------------------


class EndEffects(Value, frozen=True):
    """The side effects of the end of a run."""

    frees_key: bool
    drops_secrets: bool
    is_letter: bool
    blocks_gate: bool
    leaves_gate: bool


def effects_of_end(run: Run) -> EndEffects | None:
    """Return the side effects of the end of a run; None for most runs, without key, gate, secrets or failure."""
    spec, failed = run.spec, run.state is State.FAILED
    if not failed and run.gate is None and spec.key is None and spec.secrets is None:
        return None
    return EndEffects(
        frees_key=frees_key(run),
        drops_secrets=spec.secrets is not None and run.state is State.SUCCEEDED,
        is_letter=failed,
        blocks_gate=run.gate is not None and blocks_key(run),
        leaves_gate=run.gate is not None,  # also if it blocks the gate: a run before it may have waited for it
    )


def frees_key(run: Run) -> bool:
    """Whether the end of a run frees the key of its job."""
    return run.spec.key is not None and run.one_shot


# --- parts ------------------------------------------------------------------------------------------------------------


def due_signals(runs: Sequence[Run]) -> tuple[Signal, ...]:
    """Signal that runs can be claimed, from the earliest on."""
    times = [run.wake_at for run in runs if not run.paused]
    return (Signal(kind=Kind.DUE, at=min(times)),) if times else ()


def plan_signals(plan_at: datetime | None) -> tuple[Signal, ...]:
    """Signal planners that a job or backfill is to be planned."""
    return () if plan_at is None else (Signal(kind=Kind.PLAN, at=plan_at),)


def _stop_signals(runs: Iterable[Run]) -> tuple[Signal, ...]:
    nodes = {run.node for run in runs if run.node is not None}
    return tuple(Signal(kind=Kind.STOP, node=node) for node in sorted(nodes))


def _stronger(stop: Reason | None, other: Reason) -> Reason:
    """A cancel is never weakened to a pause."""
    return Reason.CANCELLED if stop is Reason.CANCELLED else other


def _fired(firing: Firing) -> tuple[Run | Skip | Backfill, ...]:
    return (*firing.runs, *firing.skips, *_optional(firing.backfill))


def _key_of(owner: str, key: str | None, job_id: JobId) -> tuple[KeyHolder, ...]:
    return () if key is None else (KeyHolder(owner=owner, key=key, job_id=job_id),)


def _gates_left(runs: Iterable[Run], at: datetime) -> tuple[GateLeft, ...]:
    return tuple(GateLeft(run.gate, at) for run in runs if run.gate is not None)


def _optional(item: T | None) -> tuple[T, ...]:
    return () if item is None else (item,)


def _event(kind: EventKind | None, owner: str, subject: str) -> tuple[NewEvent, ...]:
    return () if kind is None else (NewEvent(kind, owner, subject),)
