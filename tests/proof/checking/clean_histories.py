"""Generates recorded histories without any violation from a seed, by a model that shares no code with Horae.

The model has no store and no worker. It decides what happens to each run, including lost answers, crashes, retries and
overlaps, and writes the lines that clients, handlers and the final state would record.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any

from msgspec.structs import replace

from horae.proof.checking.history.records import (
    Action,
    Closed,
    Definition,
    Effect,
    Fail,
    FinalAttempt,
    FinalCounts,
    FinalJob,
    FinalRun,
    FinalSkip,
    HandlerEvent,
    Info,
    InjectedFault,
    Invoke,
    LeaseGranted,
    Limit,
    Line,
    Observation,
    Occurrence,
    Ok,
    ResultReport,
    Setup,
)

BEGIN = 1_800_000_000.0
SECONDS = 120.0  # in which jobs are asked for and come due
QUIET = 90.0
LEASE = 5.0
LATENESS = 2.0
RECOVERY = 20.0
OUTAGE = (BEGIN + 60.0, BEGIN + 75.0)  # when no planner and no worker was there, in histories that have one
COUNTED = ("failed", "timeout")


@dataclass
class ModelRun:
    """A run of the model."""

    run: str
    job: str
    owner: str
    label: str
    definition: Definition
    due: float
    created: float
    trigger: str = "schedule"
    slot: float | None = None
    requeue_of: str | None = None
    fence: int = 0
    attempt: int = 0
    crashes: int = 0
    attempts: list[FinalAttempt] = field(default_factory=list)
    first_start: float | None = None
    status: str = "scheduled"
    reason: str | None = None
    finished: float | None = None
    resolution: str | None = None


class HistoryModel:
    """Generates one history."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.lines: list[Line] = []
        self.runs: list[ModelRun] = []
        self.numbers = 0
        self.outage = self.rng.random() < 0.5
        self.limit_free_at = [BEGIN, BEGIN]  # two handlers of the queue `narrow` at once
        self.faults: set[str] = set()

    def build(self) -> list[Line]:
        for _ in range(self.rng.randint(6, 14)):
            self.rng.choice(ONCE)(self)
        for _ in range(self.rng.randint(1, 3)):
            self.rng.choice(RECURRING)(self)
        if self.rng.random() < 0.5:
            self.chain()
        if self.rng.random() < 0.5:
            self.narrow()
        if self.outage:
            self.fault("planners gone", OUTAGE[0], until=OUTAGE[1])
            self.lines.append(Observation(at=OUTAGE[1], what=Occurrence.DUPLICATE_DELIVERY, times=2))
        self.end()
        return self.lines

    # --- pieces

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def moment(self, latest: float = 40.0) -> float:
        return BEGIN + self.rng.uniform(0, latest)

    def fault(self, name: str, at: float, *, until: float | None = None) -> None:
        self.faults.add(name)
        self.lines.append(InjectedFault(at=at, fault=name, until=until))

    def define(self, **fields: Any) -> Definition:
        label = f"job {self.number()}"
        params = f'{{"label":"{label}"}}'
        return Definition(label=label, task="work", params=params, initial_seconds=1.0, **fields)

    def call(
        self,
        action: Action,
        at: float,
        *,
        end: str = "ok",
        owner: str = "local",
        answer: dict[str, str] | None = None,
        **about: Any,
    ) -> float:
        """Record a call and its answer; return when it was answered."""
        call = f"call {self.number()}"
        over = at + self.rng.uniform(0.001, 0.05)
        self.lines.append(Invoke(at=at, call=call, action=action, owner=owner, **about))
        if end == "ok":
            self.lines.append(Ok(at=over, call=call, owner=owner, **(answer or {})))
        elif end == "info":
            self.lines.append(Info(at=over, call=call, problem="no answer"))
        elif end == "fail":
            self.lines.append(Fail(at=over, call=call, code=422))
        return over

    def once(
        self, at: float, definition: Definition, *, owner: str = "local", end: str = "ok", **more: Any
    ) -> ModelRun:
        """Create a one-shot; it is in the final state even if the answer was lost."""
        number = self.number()
        job, run = f"job_{number:04}", f"run_{number:04}"
        answer = {"job": job, "run": run}
        over = self.call(Action.CREATE, at, end=end, owner=owner, definition=definition, answer=answer, **more)
        created = self.rng.uniform(at, over)
        schedule = definition.schedule
        due = created if schedule == "now" else datetime.fromisoformat(str(schedule)).timestamp()
        model = ModelRun(run, job, owner, definition.label, definition, due, created)
        self.runs.append(model)
        return model

    def live(self, model: ModelRun, plan: Sequence[str], *, seconds: float = 0.5, ready: float | None = None) -> float:
        """Run the attempts with the given outcomes; return when the last ended."""
        at = max(model.due, model.created, ready or 0.0) + self.rng.uniform(0.001, 0.2)
        for outcome in plan:
            at = self.attempt(model, outcome, at, seconds)
        model.finished = at
        final = plan[-1]
        model.status = {"succeeded": "succeeded", "cancelled": "cancelled"}.get(final, "failed")
        return at

    def attempt(self, model: ModelRun, outcome: str, at: float, seconds: float) -> float:
        """Run one attempt; return when the next may start, or when the run ended."""
        model.fence += self.rng.randint(1, 3)
        number = 1 + sum(each.outcome in COUNTED for each in model.attempts)
        self.lines.append(LeaseGranted(at=at - 0.0005, run=model.run, fence=model.fence))
        self.note(HandlerEvent.START, model, number, at)
        model.first_start = model.first_start or at
        model.attempt = number
        over = at + self.rng.uniform(0.01, seconds)
        if outcome == "lost":
            return self.lose_lease(model, number, at, over)
        match outcome:
            case "succeeded" | "failed":
                self.note(HandlerEvent.END, model, number, over, good=outcome == "succeeded")
            case "released" | "cancelled":
                self.note(HandlerEvent.STOPPED, model, number, over)
        settled = over + self.rng.uniform(0.0005, 0.02)
        self.lines.append(ResultReport(at=settled, run=model.run, fence=model.fence, accepted=True))
        error = {"failed": "ValueError", "timeout": "timeout"}.get(outcome, "")
        model.attempts.append(self.final_attempt(model, number, outcome, at, settled, error))
        if outcome in COUNTED:
            definition = model.definition
            delay = min(definition.initial_seconds * definition.factor ** (number - 1), definition.max_seconds)
            last = number > definition.max_retries
            return settled if last else settled + delay * self.rng.uniform(1, 1.25) + self.rng.uniform(0, 0.1)
        return settled + 0.002

    def lose_lease(self, model: ModelRun, number: int, at: float, over: float) -> float:
        """Let the worker die, or freeze beyond its lease and return with a stale result."""
        kind = self.rng.choice(["kill worker", "freeze worker", "kill worker before it is told"])
        self.fault(kind, at + 0.005)
        model.crashes += 1
        lost_at = at + LEASE + self.rng.uniform(0, 1)
        if kind != "kill worker before it is told":
            model.attempts.append(self.final_attempt(model, number, "lost", at, lost_at, ""))
        if kind == "freeze worker":
            woke = lost_at + self.rng.uniform(0.1, 3)
            self.note(HandlerEvent.END, model, number, woke)
            self.lines.append(ResultReport(at=woke + 0.01, run=model.run, fence=model.fence, accepted=False))
        return lost_at + self.rng.uniform(0.001, 0.5)

    def stored_at(self, model: ModelRun, end: float) -> float:
        """Return when the store gets the result of a run, which is after an outage if it ended during one."""
        if not (self.outage and OUTAGE[0] <= end < OUTAGE[1]):
            return end
        at = OUTAGE[1] + self.rng.uniform(0.001, 0.1)
        for place, line in enumerate(self.lines):
            if isinstance(line, ResultReport) and line.run == model.run:
                self.lines[place] = replace(line, at=at)
        return at

    def skip(self, model: ModelRun, reason: str, at: float) -> None:
        """Let a worker skip a run that it has claimed."""
        model.fence += 1
        self.lines.append(LeaseGranted(at=at - 0.005, run=model.run, fence=model.fence))
        self.lines.append(ResultReport(at=at, run=model.run, fence=model.fence, accepted=True))
        model.status, model.reason, model.finished = "skipped", reason, at

    def final_attempt(
        self, model: ModelRun, number: int, outcome: str, at: float, over: float, error: str
    ) -> FinalAttempt:
        return FinalAttempt(
            number=number, fence=model.fence, outcome=outcome, started_at=at, ended_at=over, error=error, node="node 1"
        )

    def note(self, event: HandlerEvent, model: ModelRun, number: int, at: float, *, good: bool = True) -> None:
        self.lines.append(
            Effect(
                at=at,
                event=event,
                run=model.run,
                job=model.job,
                attempt=number,
                fence=model.fence,
                due=model.due,
                label=model.label,
                good=good,
                params=model.definition.params,
            )
        )

    # --- jobs for once

    def plain(self) -> None:
        schedule = self.rng.choice(["now", timestamp(self.moment(60) + 50)])
        owner = self.rng.choice(["local", "other"])
        model = self.once(self.moment(), self.define(schedule=schedule), owner=owner)
        end = self.live(model, ["succeeded"])
        for wait in (1.0, 2.0):
            answer = {"run": model.run, "status": "succeeded"}
            self.call(Action.READ, end + wait, run=model.run, owner=owner, answer=answer)

    def troubled(self) -> None:
        model = self.once(self.moment(), self.define(max_retries=2))
        steps = self.rng.choices(["lost", "released"], k=self.rng.randint(0, 3))
        failures = ["failed"] * self.rng.randint(0, 2)
        plan = [*steps, *failures]
        self.rng.shuffle(plan)
        self.live(model, [*plan, "succeeded"])

    def exhausted(self) -> None:
        model = self.once(self.moment(), self.define(max_retries=self.rng.randint(0, 2)))
        plan = [self.rng.choice(["failed", "failed", "timeout"]) for _ in range(model.definition.max_retries + 1)]
        end = self.live(model, plan)
        match self.rng.choice(["leave", "discard", "requeue"]):
            case "discard":
                self.call(Action.DISCARD, end + 5, run=model.run, answer={"run": model.run})
                model.resolution = "discarded"
            case "requeue":
                run = f"run_{self.number():04}"
                over = self.call(Action.REQUEUE, end + 5, run=model.run, answer={"run": run})
                model.resolution = run
                again = ModelRun(
                    run, model.job, model.owner, model.label, model.definition, over - 0.0005, over - 0.0005,
                    trigger="requeue", requeue_of=model.run,
                )  # fmt: skip
                self.runs.append(again)
                self.live(again, ["succeeded"])

    def fatal(self) -> None:
        model = self.once(self.moment(), self.define())
        end = self.live(model, ["failed"])
        model.attempts = [FinalAttempt(number=1, fence=model.fence, outcome="failed", error="Fatal", ended_at=end)]

    def poison(self) -> None:
        model = self.once(self.moment(20), self.define())
        self.live(model, ["lost"] * 5)
        model.attempts[-1:] = [self.final_attempt(model, 1, "lost", model.finished or 0, model.finished or 0, "crash")]

    def answer_lost(self) -> None:
        definition = self.define()
        if self.rng.random() < 0.5:
            self.live(self.once(self.moment(), definition, end="info"), ["succeeded"])
        else:
            self.call(Action.CREATE, self.moment(), end="info", definition=definition)
        self.call(Action.CREATE, self.moment(), end="fail", definition=self.define())
        self.lines.append(Invoke(at=self.moment(), call="unended", action=Action.CREATE, definition=self.define()))

    def repeated(self) -> None:
        """A client without an answer repeats its call with the same key."""
        definition, key, at = self.define(), f"key {self.number()}", self.moment()
        model = self.once(at, definition, end="info", idempotency_key=key)
        answer = {"job": model.job, "run": model.run}
        for wait in (0.5, 1.5):
            self.call(Action.CREATE, at + wait, definition=definition, idempotency_key=key, answer=answer)
        self.live(model, ["succeeded"])

    def cancelled(self) -> None:
        model = self.once(self.moment(), self.define(schedule=timestamp(BEGIN + 90)))
        over = self.call(
            Action.CANCEL, self.moment() + 45, run=model.run, answer={"run": model.run, "status": "cancelled"}
        )
        model.status, model.finished = "cancelled", over

    def stopped(self) -> None:
        model = self.once(self.moment(), self.define())
        end = self.live(model, ["cancelled"], seconds=2)
        assert model.first_start is not None
        at = self.rng.uniform(model.first_start, end - 0.02) if end - model.first_start > 0.1 else model.first_start
        self.call(Action.CANCEL, at, run=model.run, answer={"run": model.run, "status": "cancelling"})

    def too_late(self) -> None:
        model = self.once(self.moment(), self.define(start_within_seconds=0.5, schedule=timestamp(BEGIN + 61)))
        model.status, model.reason, model.finished = "skipped", "too_late", BEGIN + 76
        if not self.outage:
            model.status, model.reason = "scheduled", None
            self.live(model, ["succeeded"])

    def triggered(self) -> None:
        model = self.once(self.moment(), self.define())
        end = self.live(model, ["succeeded"])
        run = f"run_{self.number():04}"
        over = self.call(Action.TRIGGER, end + 3, job=model.job, answer={"run": run, "job": model.job})
        again = ModelRun(
            run, model.job, model.owner, model.label, model.definition, over - 0.0005, over - 0.0005, trigger="manual"
        )
        self.runs.append(again)
        self.live(again, ["succeeded"])

    # --- jobs that come again

    def recurring(self, definition: Definition, at: float) -> tuple[str, float, float]:
        """Create a recurring job; return its id, when it was created, and when it was answered."""
        job = f"job_{self.number():04}"
        lost = self.rng.random() < 0.2
        over = self.call(Action.CREATE, at, definition=definition, answer={"job": job}, end="info" if lost else "ok")
        return job, self.rng.uniform(at, over), over

    def final_job(self, job: str, definition: Definition, made: float, status: str, schedule: dict[str, Any]) -> None:
        at = BEGIN + SECONDS + QUIET
        self.lines.append(
            FinalJob(
                at=at,
                job=job,
                owner="local",
                status=status,
                revision=1,
                created_at=made,
                label=definition.label,
                schedule=schedule,
            )
        )

    def slot_run(self, job: str, definition: Definition, slot: float, created: float) -> ModelRun:
        model = ModelRun(
            f"run_{self.number():04}", job, "local", definition.label, definition, slot, created, slot=slot
        )
        self.runs.append(model)
        return model

    def steady(self) -> None:
        """An interval that is deleted at the end; one missed slot is caught up, the others are skipped."""
        step = self.rng.choice([2, 5, 7])
        definition = self.define(schedule=f"every {step}s", overlap="allow")
        job, made, _ = self.recurring(definition, self.moment(10))
        made = round(made, 6)
        deleted = BEGIN + 110
        missed: list[float] = []
        slot = made
        while (slot := round(slot + step, 6)) < deleted - 1:
            if self.outage and OUTAGE[0] <= slot < OUTAGE[1] - 5:
                missed.append(slot)
                continue
            created = slot - 1 if not (self.outage and slot < OUTAGE[1] and slot >= OUTAGE[0]) else OUTAGE[1]
            if missed:
                self.live(self.slot_run(job, definition, missed.pop(), OUTAGE[1] + 0.1), ["succeeded"])
                if missed:
                    self.lines.append(
                        FinalSkip(
                            at=deleted, job=job, start=missed[0], end=missed[-1], count=len(missed), reason="misfire"
                        )
                    )
                missed = []
            plan = ["failed", "succeeded"] if self.rng.random() < 0.1 else ["succeeded"]
            self.live(self.slot_run(job, definition, slot, created), plan)
        self.call(Action.DELETE, slot - step + 0.5 if slot - step > made else deleted, job=job, answer={"job": job})
        form = {"type": "every", "seconds": step, "anchor": timestamp(made)}
        self.final_job(job, definition, made, "cancelled", form)

    def busy(self) -> None:
        """A cron job whose runs may take longer than its interval, so that slots are skipped as overlapping."""
        step = self.rng.choice([5, 10])
        form = {"type": "cron", "expression": f"*/{step} * * * * *"}
        definition = self.define(schedule=form["expression"])
        job, made, _ = self.recurring(definition, self.moment(10))
        free = made
        slot = made // step * step
        paused_at, resumed_at = BEGIN + 31.3, BEGIN + 52.2
        pausing = self.rng.random() < 0.5
        if pausing:
            self.call(Action.PAUSE, paused_at, job=job, answer={"job": job})
            self.call(Action.RESUME, resumed_at, job=job, answer={"job": job})
        skipped: list[float] = []
        while (slot := slot + step) <= BEGIN + SECONDS + QUIET:
            if pausing and paused_at < slot < resumed_at:
                skipped.append(slot)
                continue
            model = self.slot_run(job, definition, slot, slot - 1)
            if free >= slot:
                self.skip(model, "overlap", slot + 0.01)
            else:
                end = self.live(model, ["succeeded"], seconds=self.rng.choice([0.5, 2.5 * step]))
                free = self.stored_at(model, end)
        if skipped:
            self.lines.append(
                FinalSkip(
                    at=resumed_at, job=job, start=skipped[0], end=skipped[-1], count=len(skipped), reason="paused"
                )
            )
        self.final_job(job, definition, made, "scheduled", form)

    def changed(self) -> None:
        """A job whose schedule is changed."""
        old, new = {"type": "cron", "expression": "*/4 * * * * *"}, {"type": "cron", "expression": "1-59/6 * * * * *"}
        definition = self.define(schedule=old, overlap="allow")
        job, made, _ = self.recurring(definition, self.moment(10))
        later = Definition(
            label=definition.label, task="work", params=definition.params, initial_seconds=1.0, schedule=new,
            overlap="allow",
        )  # fmt: skip
        changed_at = BEGIN + 50.4
        over = self.call(Action.UPDATE, changed_at, job=job, definition=later, answer={"job": job})
        end = int(BEGIN + SECONDS + QUIET)
        for second in range(int(made) + 1, end + 1):
            before = second <= over
            wanted = second % 4 == 0 if before else (second % 60) % 6 == 1
            if wanted:
                plan = ["succeeded"]
                self.live(self.slot_run(job, definition if before else later, float(second), second - 0.9), plan)
        self.final_job(job, definition, made, "scheduled", new)

    # --- jobs that wait for each other

    def chain(self) -> None:
        """Jobs with one ordering key that run in order, despite failures and dead workers."""
        at, free = self.moment(20), 0.0
        key = f"key {self.number()}"
        for _ in range(self.rng.randint(3, 6)):
            model = self.once(at, self.define(ordering_key=key, max_retries=1))
            plan = self.rng.choice(
                [["succeeded"], ["failed", "succeeded"], ["failed", "failed"], ["lost", "succeeded"]]
            )
            free = self.live(model, plan, ready=free)
            at += self.rng.uniform(0.1, 1)

    def narrow(self) -> None:
        """A queue with a limit of two."""
        at = self.moment(20)
        for _ in range(self.rng.randint(4, 8)):
            model = self.once(at, self.define(queue="narrow"))
            self.limit_free_at.sort()
            self.limit_free_at[0] = self.live(model, ["succeeded"], seconds=3, ready=self.limit_free_at[0])
            at += self.rng.uniform(0.06, 0.5)

    # --- the end

    def end(self) -> None:
        at = BEGIN + SECONDS + QUIET
        self.lines.append(
            Setup(
                at=BEGIN,
                lateness=LATENESS,
                recovery=RECOVERY,
                lease=LEASE + 1,
                grace=3.0,
                planned=sorted(self.faults),
                limits=[Limit(scope="queue", name="narrow", most=2)],
            )
        )
        finals = [_final(model, at) for model in self.runs]
        self.lines += finals
        counts: dict[str, int] = {}
        for final in finals:
            counts[final.status] = counts.get(final.status, 0) + 1
        self.lines += [FinalCounts(at=at, dead_letters=sum(each.dead_letter for each in finals), runs=counts)]
        self.lines += [Closed(at=at)]
        self.rng.shuffle(self.lines)


def _final(model: ModelRun, at: float) -> FinalRun:
    finished = model.finished
    if finished is not None and finished > at:
        return _unfinished(model, at)
    return FinalRun(
        at=at,
        run=model.run,
        job=model.job,
        owner=model.owner,
        status=model.status,
        trigger=model.trigger,
        due_at=model.due,
        created_at=model.created,
        fence=model.fence,
        attempt=model.attempt,
        slot=model.slot,
        reason=model.reason,
        crashes=model.crashes,
        started_at=model.first_start,
        finished_at=finished,
        attempts=model.attempts,
        resolution=model.resolution,
        requeue_of=model.requeue_of,
        dead_letter=model.status == "failed" and model.resolution is None,
        queue=model.definition.queue,
        ordering_key=model.definition.ordering_key,
        label=model.label,
        params=model.definition.params,
    )


def _unfinished(model: ModelRun, at: float) -> FinalRun:
    """A run that was running when the final state was read."""
    return FinalRun(
        at=at, run=model.run, job=model.job, owner=model.owner, status="running", trigger=model.trigger,
        due_at=model.due, created_at=model.created, fence=model.fence, attempt=model.attempt, slot=model.slot,
        started_at=model.first_start, label=model.label, params=model.definition.params,
    )  # fmt: skip


def timestamp(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z")


ONCE = (
    HistoryModel.plain,
    HistoryModel.plain,
    HistoryModel.troubled,
    HistoryModel.exhausted,
    HistoryModel.fatal,
    HistoryModel.poison,
    HistoryModel.answer_lost,
    HistoryModel.repeated,
    HistoryModel.cancelled,
    HistoryModel.stopped,
    HistoryModel.too_late,
    HistoryModel.triggered,
)
RECURRING = (HistoryModel.steady, HistoryModel.busy, HistoryModel.changed)


def clean_history(seed: int) -> list[Line]:
    """A history without violations."""
    return HistoryModel(seed).build()
