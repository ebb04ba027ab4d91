"""Additions to the generated schemas: types of raw fields, defaults, enums and descriptions."""

from collections.abc import Iterable, Mapping

import msgspec

from horae.api.openapi.schedule_schemas import INSTANT, Schema, optional
from horae.api.schemas.filters import JOB_ID_PATTERN, RUN_STATUSES
from horae.api.schemas.job_requests import MAX_BATCH
from horae.api.schemas.job_views import retry_view
from horae.core.model import JobStatus, Misfire, OnFailure, Outcome, Overlap, Policy, Reason, Trigger
from horae.jobs.bulk.acts import MAX_ITEMS
from horae.jobs.dead_letters import MAX_LETTERS
from horae.queries.why import Cause

REF_PREFIX = "#/components/schemas/"
JOB_ID: Schema = {"type": "string", "pattern": JOB_ID_PATTERN}
RUN_ID: Schema = {"type": "string", "pattern": JOB_ID_PATTERN.replace("job_", "run_")}
_ANY_OBJECT: Schema = {"type": "object"}
_DEFAULTS = Policy()


def _enum(values: Iterable[str]) -> Schema:
    return {"type": "string", "enum": [str(value) for value in values]}


_JOB_FIELDS: dict[str, Schema] = {
    "task": {"description": "the name of a registered task", "examples": ["demo.echo"]},
    "params": optional(
        _ANY_OBJECT, default={}, description="checked against the schema of the task's parameters (`GET /v1/tasks`)"
    ),
    "secrets": optional(
        _ANY_OBJECT, writeOnly=True, description="merged into the parameters when a run starts; never shown again"
    ),
    "name": {"description": "a name for people; need not be unique"},
    "key": {"description": "unique per owner among unfinished jobs"},
    "labels": {"default": {}},
    "schedule": optional({"$ref": f"{REF_PREFIX}Schedule"}, default="now"),
    "queue": {"default": "default"},
    "priority": {"default": 0, "description": "higher first"},
    "ordering_key": {"description": "runs of one owner with the same ordering key run one after another, by due time"},
    "on_failure": {
        "default": str(OnFailure.CONTINUE),
        "description": "whether a failed run blocks later ones with its ordering key; `block` needs an ordering key",
    },
    "max_retries": {
        "default": _DEFAULTS.retry.max_retries,
        "description": "the default of the task, if it has one, wins over this",
    },
    "retry": {"default": msgspec.to_builtins(retry_view(_DEFAULTS.retry)), "description": "jitter adds 0 to 25 %"},
    "timeout_seconds": {"description": "of each attempt; the default is that of the task, else none"},
    "start_within_seconds": {"description": "a run that has not started this long after its due time is skipped"},
    "overlap": optional(
        _enum(Overlap),
        default=str(_DEFAULTS.overlap),
        description="what to do at a slot while the previous run is still running",
    ),
    "misfire": {"default": str(_DEFAULTS.misfire), "description": "what to do with missed slots"},
    "catchup_seconds": {
        "default": _DEFAULTS.catchup.total_seconds(),
        "description": "missed slots older than this are skipped",
    },
    "allow_unknown_task": {"default": False, "description": "accept a task that no node ever registered"},
    "idempotency_key": {"description": "like the header Idempotency-Key, for one job of the batch"},
}

_RUN_STATUS = _enum(RUN_STATUSES)
_LETTER_IDS: dict[str, Schema] = {
    "ids": optional(
        {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MAX_LETTERS},
        description="ids of runs; those that are not one's own dead letters are ignored",
    ),
}


def _bulk(subject: str) -> dict[str, Schema]:
    ids = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MAX_ITEMS}
    return {
        "ids": optional(ids, description=f"ids of {subject}; those that are not one's own are ignored"),
        "dry_run": {"description": "count only, and change nothing"},
        "cursor": {"description": "`cursor` of the previous response"},
    }


IDS_OR_FILTER: list[Schema] = [
    {"required": ["ids"], "properties": {"ids": {"type": "array"}, "filter": {"type": "null"}}},
    {"required": ["filter"], "properties": {"filter": {"type": "object"}, "ids": {"type": "null"}}},
]

# By type and field; `schemas` merges them into what msgspec generates.
OVERLAYS: Mapping[str, Mapping[str, Schema]] = {
    "JobBody": _JOB_FIELDS,
    "BatchBody": {"jobs": {"type": "array", "items": {"$ref": f"{REF_PREFIX}BatchJobRequest"}, "maxItems": MAX_BATCH}},
    "BackfillBody": {"start": INSTANT, "end": INSTANT},
    "LetterFilterBody": {
        "job_id": optional(JOB_ID),
        "error": {"description": "the type of the error"},
        "start_time": optional(INSTANT, description="due at this time or later"),
        "end_time": optional(INSTANT, description="due before this time"),
    },
    "JobBulkBody": {**_bulk("jobs"), "missed": {"description": "what `resume` does with missed slots; default `skip`"}},
    "RunBulkBody": _bulk("runs"),
    "BulkView": {
        "matched": {"description": "how many this request selected"},
        "done": {"description": "for how many of them the act succeeded"},
        "remaining": {
            "description": "how many are selected and not done, with those for further requests (counted up to 10,000)"
        },
        "cursor": {"description": "to be sent with the same body, to continue; null when nothing is left to look at"},
    },
    "DiscardBody": _LETTER_IDS,
    "RequeueBody": _LETTER_IDS,
    "RunBody": {"params": optional(_ANY_OBJECT, description="replace the parameters of the job")},
    "ResumeBody": {"missed": {"default": str(Misfire.SKIP)}},
    "PreviewBody": {
        "schedule": {"$ref": f"{REF_PREFIX}Schedule"},
        "from": optional(INSTANT, description="default now"),
    },
    "JobView": {
        "id": JOB_ID,
        "status": _enum(JobStatus),
        "params": optional(_ANY_OBJECT),
        "schedule": {"$ref": f"{REF_PREFIX}ScheduleObject"},
        "on_failure": _enum(OnFailure),
        "overlap": _enum(Overlap),
        "misfire": _enum(Misfire),
        "description": {"description": "the schedule in words"},
    },
    "StatusView": {"job_id": JOB_ID, "run_id": optional(RUN_ID), "status": _RUN_STATUS},
    "RunView": {
        "id": RUN_ID,
        "job_id": JOB_ID,
        "status": _RUN_STATUS,
        "trigger": _enum(Trigger),
        "reason": optional(_enum(Reason)),
        "requeue_of": optional(RUN_ID, description="the dead letter that this run replaces"),
        "resolution": {"description": "for a failed run: `discarded`, or the id of the run that replaced it"},
        "result": {"description": "the return value of the task"},
        "attempts": {"description": "not in lists"},
    },
    "AttemptView": {"outcome": _enum([*Outcome, "running", "succeeded"])},
    "SlotView": {
        "outcome": _enum(["ran", "skipped", "pending"]),
        "reason": optional(_enum(Reason)),
        "run_id": optional(RUN_ID),
    },
    "BackfillView": {"job_id": JOB_ID, "runs": {"description": "how many are still to be created"}},
    "WhyView": {"reason": _enum(Cause), "detail": {"description": "an explanation for people"}},
    "DeadLetterGroupView": {"example_run_id": RUN_ID},
    "DeadLetterPageView": {
        "items": {
            "type": "array",
            "items": {"anyOf": [{"$ref": f"{REF_PREFIX}Run"}, {"$ref": f"{REF_PREFIX}DeadLetterGroup"}]},
        }
    },
    "QueueView": {
        "depth": {"description": "runs that are due and not started, counted up to 10,000"},
        "lateness_p99_ms": {"description": "the 99th percentile over runs that ended in the last minutes"},
    },
    "BatchItem": {"id": JOB_ID},
    "TaskView": {"schema": {"type": ["object", "boolean"], "description": "a JSON schema"}},
    "EventView": {"job_id": optional(JOB_ID), "run_id": RUN_ID},
}
