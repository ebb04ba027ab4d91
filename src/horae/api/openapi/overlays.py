"""What the types of bodies and answers cannot say of their fields: what raw parts hold, defaults, closed choices."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from horae.api.schemas.filters import RUN_STATUSES
from horae.api.schemas.job_requests import MAX_BATCH
from horae.api.schemas.job_views import retry_view
from horae.core.model import JobStatus, Misfire, OnFailure, Outcome, Overlap, Policy, Reason, Trigger
from horae.jobs.dead_letters import MAX_LETTERS
from horae.queries.why import Cause

Schema = dict[str, Any]

REFERENCE = "#/components/schemas/"
_DIGITS = "[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}"
JOB_ID: Schema = {"type": "string", "pattern": f"^job_{_DIGITS}$"}
RUN_ID: Schema = {"type": "string", "pattern": f"^run_{_DIGITS}$"}
_INSTANT: Schema = {"type": "string", "format": "date-time"}
_ANY_OBJECT: Schema = {"type": "object"}
_DEFAULTS = Policy()


def _nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _words(words: Iterable[str]) -> Schema:
    return {"type": "string", "enum": [str(word) for word in words]}


_JOB_FIELDS: dict[str, Schema] = {
    "task": {
        "description": "the name of a task that a worker knows",
        "examples": ["demo.echo"],
    },
    "params": {
        **_nullable(_ANY_OBJECT),
        "default": {},
        "description": "checked against the schema of the task's parameters (`GET /v1/tasks`)",
    },
    "secrets": {
        **_nullable(_ANY_OBJECT),
        "writeOnly": True,
        "description": "merged into the parameters at the start of a run; never shown again",
    },
    "name": {"description": "for people"},
    "key": {"description": "unique per owner among unfinished jobs"},
    "labels": {"default": {}},
    "schedule": {**_nullable({"$ref": f"{REFERENCE}Schedule"}), "default": "now"},
    "queue": {"default": "default"},
    "priority": {"default": 0, "description": "higher first"},
    "ordering_key": {"description": "runs of one owner with the same key run one after another, by due time"},
    "on_failure": {
        "default": str(OnFailure.CONTINUE),
        "description": "what a failed run means for later ones with its ordering key; block needs one",
    },
    "max_retries": {"default": _DEFAULTS.retry.max_retries, "description": "the default is the task's own, else this"},
    "retry": {"default": msgspec.to_builtins(retry_view(_DEFAULTS.retry)), "description": "jitter adds 0 to 25 %"},
    "timeout_seconds": {"description": "for each attempt; the default is the task's own, else none"},
    "start_within_seconds": {"description": "a run that could not start for so long after its due time is skipped"},
    "overlap": {
        **_nullable(_words(Overlap)),
        "default": str(_DEFAULTS.overlap),
        "description": "what becomes of a slot whose predecessor is still going",
    },
    "misfire": {"default": str(_DEFAULTS.misfire), "description": "what becomes of slots that nobody fired in time"},
    "catchup_seconds": {
        "default": _DEFAULTS.catchup.total_seconds(),
        "description": "missed slots older than this are skipped",
    },
    "allow_unknown_task": {"default": False, "description": "accept a task that no node ever registered"},
    "idempotency_key": {"description": "like the header Idempotency-Key, for this job"},
}

_RUN_STATUS = _words(RUN_STATUSES)
_WHICH_LETTERS: dict[str, Schema] = {
    "ids": {
        **_nullable({"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MAX_LETTERS}),
        "description": "of runs; those that are no dead letters of one's own are passed over",
    },
}
ONE_OF_TWO: list[Schema] = [
    {"required": ["ids"], "properties": {"ids": {"type": "array"}, "filter": {"type": "null"}}},
    {"required": ["filter"], "properties": {"filter": {"type": "object"}, "ids": {"type": "null"}}},
]

# What is laid over the schemas that msgspec draws, by type and field.
OVERLAYS: Mapping[str, Mapping[str, Schema]] = {
    "JobBody": _JOB_FIELDS,
    "BatchBody": {"jobs": {"type": "array", "items": {"$ref": f"{REFERENCE}BatchJobRequest"}, "maxItems": MAX_BATCH}},
    "BackfillBody": {"start": _INSTANT, "end": _INSTANT},
    "LetterFilterBody": {
        "job_id": _nullable(JOB_ID),
        "error": {"description": "the type of the error"},
        "start_time": {**_nullable(_INSTANT), "description": "due at this time or later"},
        "end_time": {**_nullable(_INSTANT), "description": "due before this time"},
    },
    "DiscardBody": _WHICH_LETTERS,
    "RequeueBody": _WHICH_LETTERS,
    "RunBody": {"params": {**_nullable(_ANY_OBJECT), "description": "instead of the job's own"}},
    "ResumeBody": {"missed": {"default": str(Misfire.SKIP)}},
    "PreviewBody": {
        "schedule": {"$ref": f"{REFERENCE}Schedule"},
        "from": {**_nullable(_INSTANT), "description": "now unless said"},
    },
    "JobView": {
        "id": JOB_ID,
        "status": _words(JobStatus),
        "params": _nullable(_ANY_OBJECT),
        "schedule": {"$ref": f"{REFERENCE}ScheduleObject"},
        "on_failure": _words(OnFailure),
        "overlap": _words(Overlap),
        "misfire": _words(Misfire),
        "description": {"description": "the schedule in words"},
    },
    "StatusView": {"job_id": JOB_ID, "run_id": _nullable(RUN_ID), "status": _RUN_STATUS},
    "RunView": {
        "id": RUN_ID,
        "job_id": JOB_ID,
        "status": _RUN_STATUS,
        "trigger": _words(Trigger),
        "reason": _nullable(_words(Reason)),
        "requeue_of": {**_nullable(RUN_ID), "description": "the dead letter that this run replaces"},
        "resolution": {"description": "of a failed run: `discarded`, or the id of the run that replaced it"},
        "result": {"description": "what the task returned"},
        "attempts": {"description": "not in lists"},
    },
    "AttemptView": {"outcome": _words([*Outcome, "running", "succeeded"])},
    "SlotView": {
        "outcome": _words(["ran", "skipped", "pending"]),
        "reason": _nullable(_words(Reason)),
        "run_id": _nullable(RUN_ID),
    },
    "BackfillView": {"job_id": JOB_ID, "runs": {"description": "how many are to come"}},
    "WhyView": {"reason": _words(Cause), "detail": {"description": "a sentence to act on"}},
    "DeadLetterGroupView": {"example_run_id": RUN_ID},
    "DeadLetterPageView": {
        "items": {
            "type": "array",
            "items": {"anyOf": [{"$ref": f"{REFERENCE}Run"}, {"$ref": f"{REFERENCE}DeadLetterGroup"}]},
        }
    },
    "QueueView": {
        "depth": {"description": "due and not started, counted up to 10,000"},
        "lateness_p99_ms": {"description": "of runs that ended in the last minutes"},
    },
    "BatchItem": {"id": JOB_ID},
    "TaskView": {"schema": {"type": ["object", "boolean"], "description": "a JSON schema"}},
    "EventView": {"job_id": _nullable(JOB_ID), "run_id": RUN_ID},
}
