"""What each act on a job or a run writes: changes for `Store.apply`, and what the end of a run brings with it."""

from collections.abc import Iterable, Sequence
from datetime import datetime

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
from horae.core.decisions.firing import Firing, Page
from horae.core.decisions.release import Rival, blocks_key
from horae.core.events import EventKind, end_of_run
from horae.core.lifecycle import WAITING
from horae.core.model import DISCARDED, Backfill, Job, JobId, JobStatus, Node, Reason, Run, Skip, State
from horae.core.records import Declaration, KeyHolder, QueueSettings, Receipt, TaskSchema
from horae.core.signals import Kind, Signal
from horae.core.values import Value, replace

OVER = frozenset({JobStatus.FINISHED, JobStatus.CANCELLED})

# --- creating ---------------------------------------------------------------------------------------------------------


def create_job(firing: Firing, receipt: Receipt | None = None) -> Change:
    """A new recurring job, with what its first firing makes."""
    job = fired_job(firing)
    holder = _key_of(job.owner, job.spec.key, job.id)
    return Change(
        guards=(*_first_request(receipt), Absent(job.id), *map(KeyFree, holder)),
        puts=(job, *holder, *_fired(firing), *_kept(receipt)),
        events=(NewEvent(EventKind.JOB_CREATED, job.owner, job.id),),
        signals=(*due_signals(firing.runs), *plan_signals(firing.plan_at)),
    )


def create_one_shot(run: Run, receipt: Receipt | None = None) -> Change:
    """A new one-shot job: its one run, and its key if it has one."""
    holder = _key_of(run.owner, run.spec.key, run.job_id)
    return Change(
        guards=(*_first_request(receipt), Absent(run.id), *map(KeyFree, holder)),
        puts=(run, *holder, *_kept(receipt)),
        events=(NewEvent(EventKind.JOB_CREATED, run.owner, run.job_id),),
        signals=due_signals([run]),
    )


def create_manual_run(run: Run, receipt: Receipt | None = None) -> Change:
    """A run outside the schedule of a job that nobody has cancelled."""
    return Change(
        guards=(*_first_request(receipt), Absent(run.id), JobNotCancelled(run.job_id)),
        puts=(run, *_kept(receipt)),
        signals=due_signals([run]),
    )


def begin_backfill(backfill: Backfill, receipt: Receipt | None = None) -> Change:
    """A new backfill of a job that nobody has cancelled."""
    return Change(
        guards=(*_first_request(receipt), JobNotCancelled(backfill.job_id)),
        puts=(backfill, *_kept(receipt)),
        signals=plan_signals(backfill.plan_at),
    )


def keep_receipt(receipt: Receipt) -> Change:
    """The answer to a request that is over."""
    return Change(guards=(RequestNew(receipt),), puts=(receipt,))


# --- planning ---------------------------------------------------------------------------------------------------------


def fired_job(firing: Firing) -> Job:
    """The job after its firing."""
    return replace(firing.job, next_fire_at=firing.next_fire_at, plan_at=firing.plan_at, status=firing.status)


def fire_job(firing: Firing) -> Change:
    """Account for the slots of a job, unless another planner or a change of the job was first."""
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
    """What the schedule of a job has made of slots to come: taken back when the schedule changes or stops."""

    waiting: tuple[Run, ...] = ()
    held: tuple[Run, ...] = ()  # by nodes that have not started them, as far as is written
    skips: tuple[Skip, ...] = ()

    @classmethod
    def among(cls, runs: Iterable[Run], skips: Iterable[Skip], *, after: datetime) -> "Planned":
        """What is due later than `after`."""
        ahead = [run for run in runs if run.due_at > after]
        return cls(
            waiting=tuple(run for run in ahead if run.state in WAITING),
            held=tuple(run for run in ahead if run.state is State.CLAIMED),
            skips=tuple(skip for skip in skips if skip.start > after),
        )

    @property
    def first_slot(self) -> datetime | None:
        """The earliest slot that is open again when this is taken back."""
        slots = [run.slot for run in self.waiting if run.slot is not None] + [skip.start for skip in self.skips]
        return min(slots, default=None)


def change_job(before: Job, after: Job, planned: Planned, *, stop: Reason | None, event: EventKind | None) -> Change:
    """A new version of a recurring job; what was planned is taken back, and its nodes get the stop request `stop`."""
    stopped = planned.held if stop is not None else ()
    return Change(
        guards=(JobUnchanged.of(before), *map(RunUnchanged.of, (*planned.waiting, *stopped))),
        deletes=(
            *planned.waiting,
            *planned.skips,
            *(_key_of(after.owner, after.spec.key, after.id) if after.status in OVER else ()),
        ),
        puts=(after, *(StopRequested(run.id, _stronger(run.stop, stop)) for run in stopped if stop is not None)),
        gates_left=tuple(GateLeft(run.gate, after.updated_at) for run in planned.waiting if run.gate is not None),
        events=_event(event, after.owner, after.id),
        signals=(*plan_signals(after.plan_at), *_stop_signals(stopped)),
    )


def rewound(job: Job, planned: Planned) -> Job:
    """The job set back to the first slot that is open again."""
    times = [moment for moment in (job.next_fire_at, planned.first_slot) if moment is not None]
    return replace(job, next_fire_at=min(times, default=None))


def change_one_shot(before: Run, after: Run, *, event: EventKind | None) -> Change:
    """A new version of a one-shot that still waits; it may go out of the way of others in its gate."""
    return Change(
        guards=(RunUnchanged.of(before),),
        puts=(OneShotRevised(after),),
        gates_left=() if before.gate is None else (GateLeft(before.gate, before.wake_at),),
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
    """Those of the held runs of a paused job that can be taken back: not started, not due, and no later slot has a run.

    A job can be set back to a slot only if nothing after it is accounted for, so the latest goes first.
    """
    mine = {run.id for run in held}
    last = max((run.slot for run in planned if run.id not in mine and run.slot is not None), default=None)
    taken: list[Run] = []
    for run in sorted(held, key=lambda run: run.slot or run.due_at, reverse=True):
        open_again = run.state is State.CLAIMED and run.due_at > now and run.slot is not None
        if open_again and (last is None or (run.slot is not None and run.slot > last)):
            taken.append(run)
        else:
            last = max(run.slot or run.due_at, last or run.due_at)
    return taken


def retract_held(job: Job, runs: Sequence[Run], *, now: datetime, limited: bool) -> Change:
    """Take back runs of a paused job that their node has not started: their slots are open again.

    Where their queue is `limited`, others can be claimed in their places.
    """
    slots = [run.slot for run in runs if run.slot is not None]
    times = slots if job.next_fire_at is None else [job.next_fire_at, *slots]
    return Change(
        guards=(JobUnchanged.of(job), *map(RunUnchanged.of, runs)),
        deletes=tuple(runs),
        puts=(JobMoved(job.id, min(times), job.plan_at, job.status),),
        gates_left=tuple(GateLeft(run.gate, now) for run in runs if run.gate is not None),
        signals=(Signal(kind=Kind.DUE, at=now),) if limited else (),
    )


def park(run: Run, rival: Rival) -> Change:
    """Keep a blocked run away from claims for as long as the rival is ahead of it."""
    ahead: Guard = LetterOpen(rival.id) if rival.failed else RunLive(rival.id)
    return Change(guards=(RunUnchanged.of(run), ahead), puts=(Parked(run.id),))


def resolve_letter(letter: Run, successor: Run | None, receipt: Receipt | None = None, *, now: datetime) -> Change:
    """Resolve a dead letter: by the run that replaces it, which takes its place in their gate, or by nothing."""
    unblocks = successor is None and letter.gate is not None and blocks_key(letter)
    return Change(
        guards=(*_first_request(receipt), LetterOpen(letter.id)),
        puts=(
            LetterResolved(letter, DISCARDED if successor is None else successor.id),
            *(() if successor is None else (successor,)),
            *_kept(receipt),
        ),
        gates_left=(GateLeft(letter.gate, now),) if unblocks and letter.gate is not None else (),
        signals=() if successor is None else due_signals([successor]),
    )


# --- records and nodes ------------------------------------------------------------------------------------------------


def set_queue(before: QueueSettings, after: QueueSettings) -> Change:
    """New settings of a queue; whatever they are, waiting workers may now find something to claim."""
    return Change(guards=(QueueUnchanged(before),), puts=(after,), signals=(Signal(kind=Kind.DUE),))


def declare(declaration: Declaration, *, renew: bool = False) -> Change:
    """Note a version of a schedule; with `renew` one that was seen before counts as seen now."""
    return Change(deletes=(declaration,) if renew else (), puts=(declaration,))


def register_node(node: Node) -> Change:
    """Make a node and its tasks known."""
    tasks = tuple(TaskSchema(name=name, schema=schema) for name, schema in node.tasks.items())
    return Change(puts=(node, *tasks))


def unregister_node(node: Node) -> Change:
    """Remove a node that leaves in order, with the gates that it holds."""
    return Change(deletes=(GatesOf(node.id), node))


def remove_dead_node(node: Node) -> Change:
    """Remove a node unless it has beaten since; from here on it can claim and beat no more."""
    return Change(guards=(NodeUnchanged(node.id, node.beat_at),), deletes=(node,))


# --- the end of a run -------------------------------------------------------------------------------------------------


class EndEffects(Value, frozen=True):
    """What the end of a run brings with it, beside its own row."""

    frees_key: bool
    drops_secrets: bool
    is_letter: bool
    blocks_gate: bool
    leaves_gate: bool


def effects_of_end(run: Run) -> EndEffects | None:
    """What ends with a run; None for most, which have no key, gate or secrets and did not fail."""
    spec, failed = run.spec, run.state is State.FAILED
    if not failed and run.gate is None and spec.key is None and spec.secrets is None:
        return None
    return EndEffects(
        frees_key=frees_key(run),
        drops_secrets=spec.secrets is not None and run.state is State.SUCCEEDED,
        is_letter=failed,
        blocks_gate=run.gate is not None and blocks_key(run),
        leaves_gate=run.gate is not None,  # also where it blocks: one before it may have waited for it
    )


def frees_key(run: Run) -> bool:
    """Whether the end of a run frees the key of its job."""
    return run.spec.key is not None and run.one_shot


def event_of_end(run: Run) -> NewEvent:
    """The event of a run that reached a final state."""
    return NewEvent(end_of_run(run.state), run.owner, run.id)


# --- parts ------------------------------------------------------------------------------------------------------------


def due_signals(runs: Sequence[Run]) -> tuple[Signal, ...]:
    """That runs can be claimed, from the earliest on."""
    times = [run.wake_at for run in runs if not run.paused]
    return (Signal(kind=Kind.DUE, at=min(times)),) if times else ()


def plan_signals(plan_at: datetime | None) -> tuple[Signal, ...]:
    """That a job or backfill wants planning."""
    return () if plan_at is None else (Signal(kind=Kind.PLAN, at=plan_at),)


def _stop_signals(runs: Iterable[Run]) -> tuple[Signal, ...]:
    nodes = {run.node for run in runs if run.node is not None}
    return tuple(Signal(kind=Kind.STOP, node=node) for node in sorted(nodes))


def _stronger(stop: Reason | None, other: Reason) -> Reason:
    """A cancel is never weakened to a pause."""
    return Reason.CANCELLED if stop is Reason.CANCELLED else other


def _fired(firing: Firing) -> tuple[Run | Skip | Backfill, ...]:
    backfill = () if firing.backfill is None else (firing.backfill,)
    return (*firing.runs, *firing.skips, *backfill)


def _key_of(owner: str, key: str | None, job_id: JobId) -> tuple[KeyHolder, ...]:
    return () if key is None else (KeyHolder(owner=owner, key=key, job_id=job_id),)


def _first_request(receipt: Receipt | None) -> tuple[RequestNew, ...]:
    return () if receipt is None else (RequestNew(receipt),)


def _kept(receipt: Receipt | None) -> tuple[Receipt, ...]:
    return () if receipt is None else (receipt,)


def _event(kind: EventKind | None, owner: str, subject: str) -> tuple[NewEvent, ...]:
    return () if kind is None else (NewEvent(kind, owner, subject),)
