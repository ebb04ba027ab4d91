"""Recorded histories in which everything goes as promised: made from a seed, by a model that shares no code with Horae.

The model knows no store and no worker. It decides what happens to each run, lost answers, crashes, retries and overlaps
among it, and writes down what clients, handlers and the final state would tell.
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
class Life:
    """One run that is being told."""

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


class Teller:
    """Tells one history."""

    def __init__(self, seed: int) -> None:
        self.luck = Random(seed)
        self.lines: list[Line] = []
        self.lives: list[Life] = []
        self.numbers = 0
        self.outage = self.luck.random() < 0.5
        self.limit_free_at = [BEGIN, BEGIN]  # two handlers of the queue `narrow` at once
        self.faults: set[str] = set()

    def tell(self) -> list[Line]:
        for _ in range(self.luck.randint(6, 14)):
            self.luck.choice(ONCE)(self)
        for _ in range(self.luck.randint(1, 3)):
            self.luck.choice(RECURRING)(self)
        if self.luck.random() < 0.5:
            self.chain()
        if self.luck.random() < 0.5:
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
        return BEGIN + self.luck.uniform(0, latest)

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
        """Write down a call and its end; answers when it ended."""
        call = f"call {self.number()}"
        over = at + self.luck.uniform(0.001, 0.05)
        self.lines.append(Invoke(at=at, call=call, action=action, owner=owner, **about))
        if end == "ok":
            self.lines.append(Ok(at=over, call=call, owner=owner, **(answer or {})))
        elif end == "info":
            self.lines.append(Info(at=over, call=call, problem="no answer"))
        elif end == "fail":
            self.lines.append(Fail(at=over, call=call, code=422))
        return over

    def once(self, at: float, definition: Definition, *, owner: str = "local", end: str = "ok", **more: Any) -> Life:
        """Ask for a job for once; it is there at the end whether or not the answer was lost."""
        number = self.number()
        job, run = f"job_{number:04}", f"run_{number:04}"
        answer = {"job": job, "run": run}
        over = self.call(Action.CREATE, at, end=end, owner=owner, definition=definition, answer=answer, **more)
        created = self.luck.uniform(at, over)
        schedule = definition.schedule
        due = created if schedule == "now" else datetime.fromisoformat(str(schedule)).timestamp()
        life = Life(run, job, owner, definition.label, definition, due, created)
        self.lives.append(life)
        return life

    def live(self, life: Life, plan: Sequence[str], *, seconds: float = 0.5, ready: float | None = None) -> float:
        """Let the attempts of a run go as planned; answers when the last ended."""
        at = max(life.due, life.created, ready or 0.0) + self.luck.uniform(0.001, 0.2)
        for outcome in plan:
            at = self.attempt(life, outcome, at, seconds)
        life.finished = at
        final = plan[-1]
        life.status = {"succeeded": "succeeded", "cancelled": "cancelled"}.get(final, "failed")
        return at

    def attempt(self, life: Life, outcome: str, at: float, seconds: float) -> float:
        """One attempt; answers when the next may begin, or when the run ended."""
        life.fence += self.luck.randint(1, 3)
        number = 1 + sum(each.outcome in COUNTED for each in life.attempts)
        self.lines.append(LeaseGranted(at=at - 0.0005, run=life.run, fence=life.fence))
        self.note(HandlerEvent.START, life, number, at)
        life.first_start = life.first_start or at
        life.attempt = number
        over = at + self.luck.uniform(0.01, seconds)
        if outcome == "lost":
            return self.lose(life, number, at, over)
        match outcome:
            case "succeeded" | "failed":
                self.note(HandlerEvent.END, life, number, over, good=outcome == "succeeded")
            case "released" | "cancelled":
                self.note(HandlerEvent.STOPPED, life, number, over)
        settled = over + self.luck.uniform(0.0005, 0.02)
        self.lines.append(ResultReport(at=settled, run=life.run, fence=life.fence, accepted=True))
        error = {"failed": "ValueError", "timeout": "timeout"}.get(outcome, "")
        life.attempts.append(self.told(life, number, outcome, at, settled, error))
        if outcome in COUNTED:
            definition = life.definition
            delay = min(definition.initial_seconds * definition.factor ** (number - 1), definition.max_seconds)
            last = number > definition.max_retries
            return settled if last else settled + delay * self.luck.uniform(1, 1.25) + self.luck.uniform(0, 0.1)
        return settled + 0.002

    def lose(self, life: Life, number: int, at: float, over: float) -> float:
        """The worker dies, or sleeps past its lease and wakes up with a result that nobody wants any more."""
        kind = self.luck.choice(["kill worker", "freeze worker", "kill worker before it is told"])
        self.fault(kind, at + 0.005)
        life.crashes += 1
        lost_at = at + LEASE + self.luck.uniform(0, 1)
        if kind != "kill worker before it is told":
            life.attempts.append(self.told(life, number, "lost", at, lost_at, ""))
        if kind == "freeze worker":
            woke = lost_at + self.luck.uniform(0.1, 3)
            self.note(HandlerEvent.END, life, number, woke)
            self.lines.append(ResultReport(at=woke + 0.01, run=life.run, fence=life.fence, accepted=False))
        return lost_at + self.luck.uniform(0.001, 0.5)

    def hear(self, life: Life, end: float) -> float:
        """When the store takes the result of a run that ended: it waits for as long as nobody is there."""
        if not (self.outage and OUTAGE[0] <= end < OUTAGE[1]):
            return end
        at = OUTAGE[1] + self.luck.uniform(0.001, 0.1)
        for place, line in enumerate(self.lines):
            if isinstance(line, ResultReport) and line.run == life.run:
                self.lines[place] = replace(line, at=at)
        return at

    def skip(self, life: Life, reason: str, at: float) -> None:
        """A worker holds the run, and finds that it is not to start."""
        life.fence += 1
        self.lines.append(LeaseGranted(at=at - 0.005, run=life.run, fence=life.fence))
        self.lines.append(ResultReport(at=at, run=life.run, fence=life.fence, accepted=True))
        life.status, life.reason, life.finished = "skipped", reason, at

    def told(self, life: Life, number: int, outcome: str, at: float, over: float, error: str) -> FinalAttempt:
        return FinalAttempt(
            number=number, fence=life.fence, outcome=outcome, started_at=at, ended_at=over, error=error, node="node 1"
        )

    def note(self, event: HandlerEvent, life: Life, number: int, at: float, *, good: bool = True) -> None:
        self.lines.append(
            Effect(
                at=at,
                event=event,
                run=life.run,
                job=life.job,
                attempt=number,
                fence=life.fence,
                due=life.due,
                label=life.label,
                good=good,
                params=life.definition.params,
            )
        )

    # --- jobs for once

    def plain(self) -> None:
        schedule = self.luck.choice(["now", timestamp(self.moment(60) + 50)])
        owner = self.luck.choice(["local", "other"])
        life = self.once(self.moment(), self.define(schedule=schedule), owner=owner)
        end = self.live(life, ["succeeded"])
        for wait in (1.0, 2.0):
            answer = {"run": life.run, "status": "succeeded"}
            self.call(Action.READ, end + wait, run=life.run, owner=owner, answer=answer)

    def troubled(self) -> None:
        life = self.once(self.moment(), self.define(max_retries=2))
        steps = self.luck.choices(["lost", "released"], k=self.luck.randint(0, 3))
        failures = ["failed"] * self.luck.randint(0, 2)
        plan = [*steps, *failures]
        self.luck.shuffle(plan)
        self.live(life, [*plan, "succeeded"])

    def exhausted(self) -> None:
        life = self.once(self.moment(), self.define(max_retries=self.luck.randint(0, 2)))
        plan = [self.luck.choice(["failed", "failed", "timeout"]) for _ in range(life.definition.max_retries + 1)]
        end = self.live(life, plan)
        match self.luck.choice(["leave", "discard", "requeue"]):
            case "discard":
                self.call(Action.DISCARD, end + 5, run=life.run, answer={"run": life.run})
                life.resolution = "discarded"
            case "requeue":
                run = f"run_{self.number():04}"
                over = self.call(Action.REQUEUE, end + 5, run=life.run, answer={"run": run})
                life.resolution = run
                again = Life(
                    run, life.job, life.owner, life.label, life.definition, over - 0.0005, over - 0.0005,
                    trigger="requeue", requeue_of=life.run,
                )  # fmt: skip
                self.lives.append(again)
                self.live(again, ["succeeded"])

    def fatal(self) -> None:
        life = self.once(self.moment(), self.define())
        end = self.live(life, ["failed"])
        life.attempts = [FinalAttempt(number=1, fence=life.fence, outcome="failed", error="Fatal", ended_at=end)]

    def poison(self) -> None:
        life = self.once(self.moment(20), self.define())
        self.live(life, ["lost"] * 5)
        life.attempts[-1:] = [self.told(life, 1, "lost", life.finished or 0, life.finished or 0, "crash")]

    def answer_lost(self) -> None:
        definition = self.define()
        if self.luck.random() < 0.5:
            self.live(self.once(self.moment(), definition, end="info"), ["succeeded"])
        else:
            self.call(Action.CREATE, self.moment(), end="info", definition=definition)
        self.call(Action.CREATE, self.moment(), end="fail", definition=self.define())
        self.lines.append(Invoke(at=self.moment(), call="unended", action=Action.CREATE, definition=self.define()))

    def repeated(self) -> None:
        """A client that heard nothing asks again with the same key."""
        definition, key, at = self.define(), f"key {self.number()}", self.moment()
        life = self.once(at, definition, end="info", idempotency_key=key)
        answer = {"job": life.job, "run": life.run}
        for wait in (0.5, 1.5):
            self.call(Action.CREATE, at + wait, definition=definition, idempotency_key=key, answer=answer)
        self.live(life, ["succeeded"])

    def cancelled(self) -> None:
        life = self.once(self.moment(), self.define(schedule=timestamp(BEGIN + 90)))
        over = self.call(
            Action.CANCEL, self.moment() + 45, run=life.run, answer={"run": life.run, "status": "cancelled"}
        )
        life.status, life.finished = "cancelled", over

    def stopped(self) -> None:
        life = self.once(self.moment(), self.define())
        end = self.live(life, ["cancelled"], seconds=2)
        assert life.first_start is not None
        at = self.luck.uniform(life.first_start, end - 0.02) if end - life.first_start > 0.1 else life.first_start
        self.call(Action.CANCEL, at, run=life.run, answer={"run": life.run, "status": "cancelling"})

    def too_late(self) -> None:
        life = self.once(self.moment(), self.define(start_within_seconds=0.5, schedule=timestamp(BEGIN + 61)))
        life.status, life.reason, life.finished = "skipped", "too_late", BEGIN + 76
        if not self.outage:
            life.status, life.reason = "scheduled", None
            self.live(life, ["succeeded"])

    def triggered(self) -> None:
        life = self.once(self.moment(), self.define())
        end = self.live(life, ["succeeded"])
        run = f"run_{self.number():04}"
        over = self.call(Action.TRIGGER, end + 3, job=life.job, answer={"run": run, "job": life.job})
        again = Life(
            run, life.job, life.owner, life.label, life.definition, over - 0.0005, over - 0.0005, trigger="manual"
        )
        self.lives.append(again)
        self.live(again, ["succeeded"])

    # --- jobs that come again

    def recurring(self, definition: Definition, at: float) -> tuple[str, float, float]:
        """Ask for a recurring job: its id, when it was made, and when the client knew."""
        job = f"job_{self.number():04}"
        lost = self.luck.random() < 0.2
        over = self.call(Action.CREATE, at, definition=definition, answer={"job": job}, end="info" if lost else "ok")
        return job, self.luck.uniform(at, over), over

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

    def slot_run(self, job: str, definition: Definition, slot: float, created: float) -> Life:
        life = Life(f"run_{self.number():04}", job, "local", definition.label, definition, slot, created, slot=slot)
        self.lives.append(life)
        return life

    def steady(self) -> None:
        """Every few seconds, deleted at the end; missed slots are caught up once, the others skipped."""
        step = self.luck.choice([2, 5, 7])
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
            plan = ["failed", "succeeded"] if self.luck.random() < 0.1 else ["succeeded"]
            self.live(self.slot_run(job, definition, slot, created), plan)
        self.call(Action.DELETE, slot - step + 0.5 if slot - step > made else deleted, job=job, answer={"job": job})
        form = {"type": "every", "seconds": step, "anchor": timestamp(made)}
        self.final_job(job, definition, made, "cancelled", form)

    def busy(self) -> None:
        """By cron, and each run may take longer than the time to the next: slots are skipped as overlapping."""
        step = self.luck.choice([5, 10])
        form = {"type": "cron", "expression": f"*/{step} * * * * *"}
        definition = self.define(schedule=form["expression"])
        job, made, _ = self.recurring(definition, self.moment(10))
        free = made
        slot = made // step * step
        paused_at, resumed_at = BEGIN + 31.3, BEGIN + 52.2
        pausing = self.luck.random() < 0.5
        if pausing:
            self.call(Action.PAUSE, paused_at, job=job, answer={"job": job})
            self.call(Action.RESUME, resumed_at, job=job, answer={"job": job})
        skipped: list[float] = []
        while (slot := slot + step) <= BEGIN + SECONDS + QUIET:
            if pausing and paused_at < slot < resumed_at:
                skipped.append(slot)
                continue
            life = self.slot_run(job, definition, slot, slot - 1)
            if free >= slot:
                self.skip(life, "overlap", slot + 0.01)
            else:
                end = self.live(life, ["succeeded"], seconds=self.luck.choice([0.5, 2.5 * step]))
                free = self.hear(life, end)
        if skipped:
            self.lines.append(
                FinalSkip(
                    at=resumed_at, job=job, start=skipped[0], end=skipped[-1], count=len(skipped), reason="paused"
                )
            )
        self.final_job(job, definition, made, "scheduled", form)

    def changed(self) -> None:
        """By one schedule, then by another."""
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
        """Jobs with one ordering key, one after another, also through failures and dead workers."""
        at, free = self.moment(20), 0.0
        key = f"key {self.number()}"
        for _ in range(self.luck.randint(3, 6)):
            life = self.once(at, self.define(ordering_key=key, max_retries=1))
            plan = self.luck.choice(
                [["succeeded"], ["failed", "succeeded"], ["failed", "failed"], ["lost", "succeeded"]]
            )
            free = self.live(life, plan, ready=free)
            at += self.luck.uniform(0.1, 1)

    def narrow(self) -> None:
        """A queue with room for two."""
        at = self.moment(20)
        for _ in range(self.luck.randint(4, 8)):
            life = self.once(at, self.define(queue="narrow"))
            self.limit_free_at.sort()
            self.limit_free_at[0] = self.live(life, ["succeeded"], seconds=3, ready=self.limit_free_at[0])
            at += self.luck.uniform(0.06, 0.5)

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
        finals = [_final(life, at) for life in self.lives]
        self.lines += finals
        counts: dict[str, int] = {}
        for final in finals:
            counts[final.status] = counts.get(final.status, 0) + 1
        self.lines += [FinalCounts(at=at, dead_letters=sum(each.dead_letter for each in finals), runs=counts)]
        self.lines += [Closed(at=at)]
        self.luck.shuffle(self.lines)


def _final(life: Life, at: float) -> FinalRun:
    finished = life.finished
    if finished is not None and finished > at:
        return _unfinished(life, at)
    return FinalRun(
        at=at,
        run=life.run,
        job=life.job,
        owner=life.owner,
        status=life.status,
        trigger=life.trigger,
        due_at=life.due,
        created_at=life.created,
        fence=life.fence,
        attempt=life.attempt,
        slot=life.slot,
        reason=life.reason,
        crashes=life.crashes,
        started_at=life.first_start,
        finished_at=finished,
        attempts=life.attempts,
        resolution=life.resolution,
        requeue_of=life.requeue_of,
        dead_letter=life.status == "failed" and life.resolution is None,
        queue=life.definition.queue,
        ordering_key=life.definition.ordering_key,
        label=life.label,
        params=life.definition.params,
    )


def _unfinished(life: Life, at: float) -> FinalRun:
    """A run that was at work when the final state was read."""
    return FinalRun(
        at=at, run=life.run, job=life.job, owner=life.owner, status="running", trigger=life.trigger, due_at=life.due,
        created_at=life.created, fence=life.fence, attempt=life.attempt, slot=life.slot, started_at=life.first_start,
        label=life.label, params=life.definition.params,
    )  # fmt: skip


def timestamp(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z")


ONCE = (
    Teller.plain,
    Teller.plain,
    Teller.troubled,
    Teller.exhausted,
    Teller.fatal,
    Teller.poison,
    Teller.answer_lost,
    Teller.repeated,
    Teller.cancelled,
    Teller.stopped,
    Teller.too_late,
    Teller.triggered,
)
RECURRING = (Teller.steady, Teller.busy, Teller.changed)


def clean_history(seed: int) -> list[Line]:
    """A history that keeps every promise."""
    return Teller(seed).tell()
