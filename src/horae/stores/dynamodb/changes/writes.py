"""What changes write in DynamoDB, as actions of one transaction and as hints that are written before it."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime

from horae.core.changes import (
    Delete,
    GatesOf,
    JobMoved,
    LetterResolved,
    OneShotRevised,
    Parked,
    Put,
    RunRestored,
    StopRequested,
)
from horae.core.decisions.release import blocks_key
from horae.core.model import Backfill, Job, JobStatus, Node, Run, Skip, State
from horae.core.records import (
    IDEMPOTENCY_LIFE,
    Declaration,
    IdempotencyRecord,
    KeyHolder,
    QueueSettings,
    ScheduleTrail,
    TaskSchema,
)
from horae.stores.common.records import encode_record
from horae.stores.dynamodb.changes.actions import Actions
from horae.stores.dynamodb.changes.guards import NamedRows, job_key, run_key
from horae.stores.dynamodb.database import Names, PutItem
from horae.stores.dynamodb.gates import is_item_gate, member_item, member_key
from horae.stores.dynamodb.items import (
    NULL,
    Item,
    attempt_item,
    due_key,
    job_item,
    live_of,
    moment,
    packed,
    run_item,
    run_of,
    spread,
    stamp,
    text,
)
from horae.stores.dynamodb.journals import made_items, restored_entry
from horae.stores.dynamodb.lines import settings_item, settings_key
from horae.stores.dynamodb.pending import PENDING, PENDING_SINCE
from horae.stores.dynamodb.small_items import (
    backfill_item,
    backfill_key,
    node_item,
    node_key,
    record_item,
    record_key,
    skip_item,
    skip_key,
)

GRAVES = "graves"


class Writing:
    """Turns the deletes and puts of one change into actions; hints of new runs are the caller's."""

    def __init__(self, names: Names, rows: NamedRows, actions: Actions, shards: Mapping[str, int]) -> None:
        self.before: list[PutItem] = []  # written before the transaction
        self.plans: list[tuple[datetime, str]] = []  # what planners should look at, and when
        self.moved: list[Run] = []  # runs that wake at another time or place
        self.parked: list[Run] = []
        self._names = names
        self._rows = rows
        self._actions = actions
        self._shards = shards
        self._born: defaultdict[str, list[str]] = defaultdict(list)  # job → new runs
        self._gone: defaultdict[str, set[str]] = defaultdict(set)
        self._made: set[str] = set()  # jobs that the change creates

    def delete(self, item: Delete) -> None:
        """Delete what is there."""
        names = self._names
        match item:
            case Run():
                self._actions.at(names.runs, run_key(item.id)).delete()
                if str(item.job_id) != item.id:
                    self._gone[item.job_id].add(item.id)
            case Skip():
                self._actions.at(names.jobs, skip_key(item)).delete()
            case Backfill():
                self._actions.at(names.jobs, backfill_key(item)).delete()
            case KeyHolder():
                self._delete_holder(item)
            case Declaration():
                row = encode_record(item)
                self._actions.at(names.meta, record_key(row.kind, row.owner, row.key)).delete()
            case Node():
                self._delete_node(item)
            case GatesOf():
                pass  # freed once the node is gone

    def put(self, item: Put) -> None:
        """Write what is new or was changed."""
        names = self._names
        match item:
            case Job():
                self._put_job(item)
            case JobMoved():
                self._move_job(item)
            case Run():
                self._put_run(item)
            case OneShotRevised(run):
                self._revise(run)
            case StopRequested():
                self._stop(item)
            case Parked():
                self._park(item)
            case LetterResolved(letter, resolution):
                self._resolve(letter, resolution)
            case RunRestored():
                self._restore(item)
            case Skip():
                self._actions.at(names.jobs, skip_key(item)).put(skip_item(item))
            case Backfill():
                self._actions.at(names.jobs, backfill_key(item)).put(backfill_item(item))
                self.plans.append((item.plan_at, f"{item.job_id}+{item.id}"))
            case KeyHolder() | Declaration() | ScheduleTrail():
                self._put_record(record_item(item))
            case IdempotencyRecord():
                self._put_record(record_item(item, 2 * IDEMPOTENCY_LIFE))
            case QueueSettings():
                self._actions.at(names.meta, settings_key(item.queue)).put(settings_item(item))
            case Node():
                self._actions.at(names.meta, node_key(item.id)).put(node_item(item))
            case TaskSchema():
                pass  # written before: any number of them, and none is ever wrong

    def finish(self) -> None:
        """Note in jobs which of their runs may not have ended."""
        for job_id in {**self._born, **self._gone}:
            item = self._rows.jobs.get(job_id)
            if item is None and job_id not in self._made:
                continue
            action = self._actions.at(self._names.jobs, job_key(job_id))
            before = [] if item is None else live_of(item)
            live = [ident for ident in before if ident not in self._gone[job_id]]
            live += [ident for ident in self._born[job_id] if ident not in live]
            if live != before:
                action.set("live", packed(live))
                if item is not None:
                    action.require("live", item.get("live"))

    # --- one kind each

    def _put_job(self, job: Job) -> None:
        item = self._rows.jobs.get(job.id)
        new = job_item(job, spread(job.id, self._shards[job.owner]), () if item is None else live_of(item))
        if item is not None:
            new["os"] = item["os"]
        if job.status is JobStatus.CANCELLED:
            new |= {"old": text("job"), "old_at": text(stamp(job.updated_at) + job.id)}
        action = self._actions.at(self._names.jobs, job_key(job.id))
        action.put(new)
        if item is None:
            self._made.add(job.id)
            action.require("job", None)
        else:
            action.require("live", item.get("live"))
        if job.plan_at is not None:
            self.plans.append((job.plan_at, job.id))

    def _move_job(self, moved: JobMoved) -> None:
        action = self._actions.at(self._names.jobs, job_key(moved.id))
        action.set("nf", NULL if moved.next_fire_at is None else moment(moved.next_fire_at))
        action.set("pa", NULL if moved.plan_at is None else moment(moved.plan_at))
        action.set("s", text(moved.status.value))
        for name in (PENDING, PENDING_SINCE):
            action.remove(name)
        if moved.plan_at is not None:
            self.plans.append((moved.plan_at, moved.id))

    def _put_run(self, run: Run) -> None:
        if run.id in self._rows.runs:
            return  # it stays
        action = self._actions.at(self._names.runs, run_key(run.id))
        action.put(run_item(run, spread(run.id, self._shards[run.owner])))
        action.require("id", None)
        if str(run.job_id) != run.id:
            self._born[run.job_id].append(run.id)

    def _restore(self, restored: RunRestored) -> None:
        """Write a run that ended long ago, unless it is there; retention finds it by the time of its return."""
        run = restored.run
        if run.id in self._rows.runs:
            return
        item = run_item(run, spread(run.id, self._shards[run.owner])) | {"rst": moment(restored.at)}
        if run.state is State.FAILED and run.resolution is None:
            item["dead"] = text(due_key(run))
        action = self._actions.at(self._names.runs, run_key(run.id))
        action.put(item)
        action.require("id", None)
        beside = [
            *map(attempt_item, restored.attempts),
            restored_entry(run, restored.at),
            *made_items([run], self._shards),
        ]
        self.before += [PutItem(self._names.meta, each) for each in beside]

    def _revise(self, run: Run) -> None:
        found = self._rows.runs[run.id]
        item = run_item(run, 0) | {"os": found["os"]}
        action = self._actions.at(self._names.runs, run_key(run.id))
        action.put(item)
        before = run_of(found)
        if is_item_gate(before.gate) and member_key(before) != (member_key(run) if run.gate else None):
            self._actions.at(self._names.meta, member_key(before)).delete()
        if is_item_gate(run.gate):
            self.before.append(PutItem(self._names.meta, member_item(run)))
        self.moved.append(run)

    def _stop(self, stop: StopRequested) -> None:
        self._actions.at(self._names.runs, run_key(stop.run_id)).set("st", text(stop.reason.value))
        node = run_of(self._rows.runs[stop.run_id]).node
        if node is not None:
            item = {"pk": text(f"stop#{node}"), "sk": text(stop.run_id)}
            self._actions.at(self._names.meta, dict(item)).put(item)

    def _park(self, parked: Parked) -> None:
        if (item := self._rows.runs.get(parked.run_id)) is None:
            return
        self._actions.at(self._names.runs, run_key(parked.run_id)).set("pk", {"BOOL": True})
        self.parked.append(run_of(item))

    def _resolve(self, letter: Run, resolution: str) -> None:
        action = self._actions.at(self._names.runs, run_key(letter.id))
        action.set("rsl", text(resolution))
        action.remove("dead")
        if is_item_gate(letter.gate) and blocks_key(letter):
            self._actions.at(self._names.meta, member_key(letter)).delete()

    def _put_record(self, item: Item) -> None:
        self._actions.at(self._names.meta, {name: item[name] for name in ("pk", "sk")}).put(item)

    def _delete_holder(self, holder: KeyHolder) -> None:
        """Free a key, unless another job has taken it meanwhile."""
        row = encode_record(holder)
        key = record_key(row.kind, row.owner, row.key)
        found = self._rows.small(key)
        if found is not None and found["v"]["S"] == row.value:
            action = self._actions.at(self._names.meta, key)
            action.delete()
            action.require("v", text(row.value))

    def _delete_node(self, node: Node) -> None:
        """Delete a node, and note that its runs are to be looked for."""
        found = self._rows.small(node_key(node.id))
        self._actions.at(self._names.meta, node_key(node.id)).delete()
        if found is not None:
            grave = {"pk": text(GRAVES), "sk": text(node.id), "b": found["b"]}
            if "to" in found:
                grave["to"] = found["to"]
            self._actions.at(self._names.meta, {"pk": text(GRAVES), "sk": text(node.id)}).put(grave)
