"""The shapes of what users write, every limit on it, and what it means in the domain; answers are in `views`."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from horae.api.http.body import MAX_BODY, decode, decode_object, unknown_field, wrong_in
from horae.api.http.duplicate_keys import repeated_name
from horae.api.http.problems import NotSupported
from horae.api.schemas.responses import retry_view, seconds_of
from horae.core.drafts import KEEP, MAX_PARAMS, Draft, Secrets, SecretsPatch
from horae.core.errors import Fault, Invalid, NotFound, TooLarge
from horae.core.ids import is_id
from horae.core.limits import (
    Duration,
    Key,
    Labels,
    MaxRetries,
    Name,
    Priority,
    Queue,
    RetryDelay,
    RetryFactor,
    Task,
    Timeout,
)
from horae.core.merge_patch import merged
from horae.core.model import (
    NO_LABELS,
    Job,
    JobId,
    Misfire,
    OnFailure,
    Overlap,
    Policy,
    Run,
    RunId,
)
from horae.core.retry import RetryPolicy
from horae.core.schedule.evaluate import parse_timestamp, schedule_to_wire
from horae.core.values import replace

# --- limits -----------------------------------------------------------------------------------------------------------

MAX_BATCH = 10_000  # jobs in one request
FireCount = Annotated[int, Meta(ge=1, le=1000)]

LATER_OVERLAPS = ("buffer_all", "cancel_other")
READ_ONLY = frozenset(
    {"id", "owner", "created_by", "status", "next_run_at", "created_at", "updated_at", "revision"}
    | {"last_run", "description"}
)


# --- what users write -------------------------------------------------------------------------------------------------


class RetryBody(Struct, forbid_unknown_fields=True, frozen=True):
    """The delays between attempts."""

    initial_seconds: RetryDelay | None = None
    factor: RetryFactor | None = None
    max_seconds: RetryDelay | None = None
    jitter: bool | None = None


class JobBody(Struct, forbid_unknown_fields=True):
    """A job as it is asked for; null is the same as leaving a field out."""

    task: Task
    params: Raw | UnsetType = UNSET
    secrets: Raw | UnsetType = UNSET
    name: Name | None = None
    key: Key | None = None
    labels: Labels | None = None
    schedule: str | dict[str, Any] | None = None
    queue: Queue | None = None
    priority: Priority | None = None
    ordering_key: Key | None = None
    on_failure: OnFailure | None = None
    max_retries: MaxRetries | None = None
    retry: RetryBody | None = None
    timeout_seconds: Timeout | None = None
    start_within_seconds: Duration | None = None
    overlap: Literal["allow", "skip", "buffer_one", "buffer_all", "cancel_other"] | None = None
    misfire: Misfire | None = None
    catchup_seconds: Duration | None = None
    notify: Raw | UnsetType = UNSET
    allow_unknown_task: bool | None = None
    idempotency_key: Key | None = None


class PatchBody(Struct, forbid_unknown_fields=True):
    """A merge patch (RFC 7396) over the fields of a job; it is read by `read_patch`."""


class ReplacementBody(Struct, forbid_unknown_fields=True):
    """The whole of a job, with or without what only the server can tell; it is read by `read_replacement`."""

    task: Task


class BatchBody(Struct, forbid_unknown_fields=True):
    """Many jobs; each is decoded by itself, so that one that is wrong does not stop the others."""

    jobs: list[Raw]


class RunBody(Struct, forbid_unknown_fields=True):
    """How to run a job now."""

    params: Raw | UnsetType = UNSET


class BackfillBody(Struct, forbid_unknown_fields=True):
    """Which slots of the past to run, both ends included."""

    start: str
    end: str


class ResumeBody(Struct, forbid_unknown_fields=True):
    """What becomes of the slots that came due in the pause."""

    missed: Misfire | None = None


class AgainBody(Struct, forbid_unknown_fields=True):
    """How to try a failed run again: `params` is a merge patch over those that it had."""

    params: dict[str, Any] | None = None


class EmptyBody(Struct, forbid_unknown_fields=True):
    """Nothing to say."""


class PreviewBody(Struct, forbid_unknown_fields=True):
    """A schedule to try out."""

    schedule: str | dict[str, Any]
    count: FireCount = 10
    from_: str | None = msgspec.field(default=None, name="from")


_JOB = msgspec.json.Decoder(JobBody)
_FIELDS = msgspec.json.Decoder(dict[str, Raw])
_DEFAULT_POLICY = Policy()


def read_job(data: bytes) -> Draft:
    """The job that a body asks for."""
    return _alone(decode(data, JobBody, _JOB))


def read_batch_job(data: bytes) -> tuple[Draft, str | None]:
    """One job of a batch, and its idempotency key."""
    if len(data) > MAX_BODY:
        raise TooLarge(f"a job has at most {MAX_BODY} bytes, in a batch as alone; this one has {len(data)}")
    body = decode(data, JobBody, _JOB)
    return _draft(body), body.idempotency_key


def read_patch(data: bytes, job: Job | Run, params: str) -> Draft:
    """What a merge patch (RFC 7396) makes of a job. A schedule of another type replaces the old one as a whole."""
    patch = decode_object(data)
    if not patch.keys() <= set(JobBody.__struct_fields__):
        raise wrong_in(_not_writable(name) for name in patch if name not in JobBody.__struct_fields__)
    secrets = _patched_secrets(patch)
    before = definition(job)
    schedule = patch.get("schedule")
    if isinstance(schedule, dict) and schedule.get("type", before["schedule"]["type"]) != before["schedule"]["type"]:
        before["schedule"] = {}
    before["params"] = msgspec.json.decode(params) if isinstance(patch.get("params"), dict) else Raw(params.encode())
    return replace(read_job(msgspec.json.encode(merged(before, patch))), secrets=secrets)


def _patched_secrets(patch: dict[str, Any]) -> Secrets:
    """Take what a patch says about the secrets out of it: they cannot be merged here, for nobody reads them."""
    secrets = patch.pop("secrets", UNSET)
    if secrets is UNSET:
        return KEEP
    if secrets is None:
        return None
    if not isinstance(secrets, dict):
        raise Invalid("secrets must be an object of named parameters", pointer="/secrets")
    return SecretsPatch(msgspec.json.encode(secrets).decode())


def read_replacement(data: bytes, key: str | None) -> Draft:
    """The whole of a job that may be there already, with the key that it has, or shall have.

    What the server tells of a job is passed over, so that the answer to a GET can be sent back. Secrets that are not
    named stay, for nobody can read them.
    """
    fields = _fields(data)
    body = decode(msgspec.json.encode(fields), JobBody, _JOB)
    if body.key not in (None, key):
        raise Invalid(f"the key of this job is {key!r}; leave it out, or create another job", pointer="/key")
    body.key = key
    draft = _alone(body)
    return draft if "secrets" in fields else replace(draft, secrets=KEEP)


def _fields(data: bytes) -> dict[str, Raw]:
    """The fields of an object that users may write, as they wrote them."""
    decode_object(data)
    return {name: raw for name, raw in _FIELDS.decode(data).items() if name not in READ_ONLY}


def definition(job: Job | Run) -> dict[str, Any]:
    """The fields of a job that users write, but for the parameters."""
    spec, policy = job.spec, job.spec.policy
    assert job.schedule is not None
    return {
        "task": spec.task,
        "name": spec.name,
        "key": spec.key,
        "labels": dict(spec.labels),
        "schedule": schedule_to_wire(job.schedule),
        "queue": spec.queue,
        "priority": spec.priority,
        "ordering_key": spec.ordering_key,
        "on_failure": policy.on_failure,
        "max_retries": policy.retry.max_retries,
        "retry": msgspec.to_builtins(retry_view(policy.retry)),
        "timeout_seconds": seconds_of(policy.timeout),
        "start_within_seconds": seconds_of(policy.start_within),
        "overlap": policy.overlap,
        "misfire": policy.misfire,
        "catchup_seconds": seconds_of(policy.catchup),
    }


def read_params(raw: Raw | UnsetType) -> str | None:
    """Parameters as JSON text; None when there are none."""
    if isinstance(raw, UnsetType):
        return None
    data = bytes(raw)
    if data == b"null":
        return None
    if len(data) > MAX_PARAMS:
        raise TooLarge(f"params has {len(data)} bytes; at most {MAX_PARAMS} are allowed")
    if data[:1] != b"{":
        raise Invalid("params must be an object", pointer="/params")
    return data.decode()


def read_moment(text: str, pointer: str) -> datetime:
    """A timestamp with an offset."""
    try:
        return parse_timestamp(text, pointer)
    except Invalid as exc:
        raise Invalid(str(exc), faults=exc.faults) from exc


def read_batch(data: bytes, *, lines: bool) -> Sequence[bytes]:
    """The jobs of a batch, each still to be read: `{"jobs": [...]}`, or one a line."""
    if lines:
        jobs = [line for line in data.split(b"\n") if line.strip()] if data != b"{}" else []
    else:
        jobs = [bytes(raw) for raw in decode(data, BatchBody, _BATCH, in_parts=True).jobs]
        if data.count(b":") != 1 + sum(job.count(b":") for job in jobs):
            raise repeated_name("jobs")
    if len(jobs) > MAX_BATCH:
        raise TooLarge(f"a batch holds at most {MAX_BATCH} jobs, not {len(jobs)}")
    return jobs


_BATCH = msgspec.json.Decoder(BatchBody)


def _alone(body: JobBody) -> Draft:
    """A job that does not come in a batch."""
    if body.idempotency_key is not None:
        raise Invalid(
            "idempotency_key is for the jobs of a batch; send the header Idempotency-Key", pointer="/idempotency_key"
        )
    return _draft(body)


def _draft(body: JobBody) -> Draft:
    _refuse_what_comes_later(body)
    return Draft(
        task=body.task,
        params=read_params(body.params) or "{}",
        secrets=_read_secrets(body.secrets),
        name=body.name,
        key=body.key,
        labels=MappingProxyType(body.labels) if body.labels else NO_LABELS,
        schedule="now" if body.schedule is None else body.schedule,
        queue=body.queue or "default",
        priority=body.priority or 0,
        ordering_key=body.ordering_key,
        policy=_policy(body),
        max_retries=body.max_retries,
        timeout=_duration(body.timeout_seconds),
        allow_unknown_task=bool(body.allow_unknown_task),
    )


def _refuse_what_comes_later(body: JobBody) -> None:
    if body.notify is not UNSET and bytes(body.notify) != b"null":
        raise NotSupported("the field notify", pointer="/notify")
    if body.overlap in LATER_OVERLAPS:
        raise NotSupported(f"overlap: {body.overlap}", pointer="/overlap")


def _read_secrets(raw: Raw | UnsetType) -> str | None:
    """Secrets as JSON text; whoever seals them looks at them."""
    return None if isinstance(raw, UnsetType) or bytes(raw) == b"null" else bytes(raw).decode()


def _policy(body: JobBody) -> Policy:
    """The policy but for max_retries and the timeout, which the task has a say in."""
    given = (body.retry, body.start_within_seconds, body.overlap, body.misfire, body.catchup_seconds, body.on_failure)
    return _DEFAULT_POLICY if given == (None,) * 6 else _policy_of(*given)


@lru_cache(1024)
def _policy_of(
    retry: RetryBody | None,
    start_within: float | None,
    overlap: str | None,
    misfire: Misfire | None,
    catchup: float | None,
    on_failure: OnFailure | None,
) -> Policy:
    default = _DEFAULT_POLICY
    return Policy(
        retry=_retry(retry or RetryBody(), default.retry),
        start_within=_duration(start_within),
        overlap=default.overlap if overlap is None else Overlap(overlap),
        misfire=default.misfire if misfire is None else misfire,
        catchup=default.catchup if catchup is None else timedelta(seconds=catchup),
        on_failure=default.on_failure if on_failure is None else on_failure,
    )


def _retry(body: RetryBody, default: RetryPolicy) -> RetryPolicy:
    return RetryPolicy(
        initial=default.initial if body.initial_seconds is None else timedelta(seconds=body.initial_seconds),
        factor=default.factor if body.factor is None else body.factor,
        maximum=default.maximum if body.max_seconds is None else timedelta(seconds=body.max_seconds),
        jitter=default.jitter if body.jitter is None else body.jitter,
    )


def _not_writable(name: str) -> Fault:
    if name in READ_ONLY:
        return Fault(f"/{name}", f"{name} is told by the server and cannot be set")
    return unknown_field(name, JobBody)


# --- ids --------------------------------------------------------------------------------------------------------------


def read_job_id(text: str) -> JobId:
    """The id of a job; one that is malformed names nothing."""
    return JobId(_read_id(text, "job"))


def read_run_id(text: str) -> RunId:
    """The id of a run; one that is malformed names nothing."""
    return RunId(_read_id(text, "run"))


def read_run_ids(texts: Sequence[str]) -> list[RunId]:
    """Those of some ids that a run can have."""
    bare = (text.removeprefix("run_") for text in texts if text.startswith("run_"))
    return [RunId(text) for text in bare if is_id(text)]


def read_key(text: str) -> str:
    """The key of a job, from a path."""
    try:
        key = msgspec.convert(text, Key)
    except msgspec.ValidationError as exc:
        raise Invalid("a key has from 1 to 200 characters") from exc
    if "\0" in key:
        raise Invalid("a key cannot hold the character NUL")
    return key


def _read_id(text: str, kind: str) -> str:
    bare = text.removeprefix(f"{kind}_")
    if bare == text or not is_id(bare):
        raise NotFound(kind, text[:100])
    return bare


# --- helpers


def _duration(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
