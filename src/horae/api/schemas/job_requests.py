"""The bodies that create or change jobs, and the drafts that they become."""

from collections.abc import Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from horae.api.http.body import MAX_BODY, decode, decode_object, invalid_body, unknown_field
from horae.api.http.duplicate_keys import repeated_name
from horae.api.http.problems import Incomplete, NotSupported
from horae.api.schemas.job_views import job_view
from horae.core.decisions.retry import RetryPolicy
from horae.core.drafts import MAX_PARAMS, UNCHANGED, Draft, Secrets, SecretsPatch, policy_of
from horae.core.errors import Fault, Invalid, TooLarge
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
from horae.core.merge_patch import merge_patch
from horae.core.model import NO_LABELS, Misfire, OnFailure, Policy
from horae.core.values import replace
from horae.queries.jobs import Overview

MAX_BATCH = 10_000  # jobs in one request
UNSUPPORTED_OVERLAPS = ("buffer_all", "cancel_other")
READ_ONLY = frozenset(
    {"id", "owner", "created_by", "status", "next_run_at", "created_at", "updated_at", "revision"}
    | {"last_run", "description", "omitted"}
)


class RetryBody(Struct, forbid_unknown_fields=True):
    """The delays between attempts."""

    initial_seconds: RetryDelay | None = None
    factor: RetryFactor | None = None
    max_seconds: RetryDelay | None = None
    jitter: bool | None = None


class JobBody(Struct, forbid_unknown_fields=True):
    """A job to create; null means the same as leaving the field out."""

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
    """A merge patch (RFC 7396) of a job's fields."""  # declared for OpenAPI only; `read_patch` reads it


class ReplacementBody(Struct, forbid_unknown_fields=True):
    """A complete job; read-only fields are accepted and ignored."""  # for OpenAPI only; `read_replacement` reads it

    task: Task


class BatchBody(Struct, forbid_unknown_fields=True):
    """Jobs to create; an invalid one does not affect the others."""

    jobs: list[Raw]  # decoded one by one


_FIELDS = msgspec.json.Decoder(dict[str, Raw])


def read_job(data: bytes) -> Draft:
    """Return the draft of a single job."""
    return _single_draft(decode(data, JobBody))


def read_batch_job(data: bytes) -> tuple[Draft, str | None]:
    """Return the draft of one job of a batch, and its idempotency key."""
    if len(data) > MAX_BODY:
        raise TooLarge(f"a job may have at most {MAX_BODY} bytes, also in a batch; this one has {len(data)}")
    body = decode(data, JobBody)
    return _draft(body), body.idempotency_key


def read_batch(data: bytes, *, lines: bool) -> Sequence[bytes]:
    """Return the jobs of a batch, each still undecoded; with `lines` the body is NDJSON."""
    if lines:
        jobs = [line for line in data.split(b"\n") if line.strip()] if data != b"{}" else []
    else:
        jobs = [bytes(raw) for raw in decode(data, BatchBody, in_parts=True).jobs]
        if data.count(b":") != 1 + sum(job.count(b":") for job in jobs):
            raise repeated_name("jobs")
    if len(jobs) > MAX_BATCH:
        raise TooLarge(f"a batch may hold at most {MAX_BATCH} jobs; this one has {len(jobs)}")
    return jobs


def read_patch(data: bytes, overview: Overview) -> Draft:
    """Return a job with a merge patch (RFC 7396) applied; a schedule of another type replaces the old one entirely."""
    patch = decode_object(data)
    if not patch.keys() <= set(JobBody.__struct_fields__):
        raise invalid_body(_not_writable(name) for name in patch if name not in JobBody.__struct_fields__)
    secrets = _patched_secrets(patch)
    before, params = _definition(overview), overview.params
    assert params is not None
    schedule = patch.get("schedule")
    if isinstance(schedule, dict) and schedule.get("type", before["schedule"]["type"]) != before["schedule"]["type"]:
        before["schedule"] = {}
    before["params"] = msgspec.json.decode(params) if isinstance(patch.get("params"), dict) else Raw(params.encode())
    return replace(read_job(msgspec.json.encode(merge_patch(before, patch))), secrets=secrets)


def _patched_secrets(patch: dict[str, Any]) -> Secrets:
    """Remove the secrets from a patch and return them: they cannot be merged here, because they are write-only."""
    secrets = patch.pop("secrets", UNSET)
    if secrets is UNSET:
        return UNCHANGED
    if secrets is None:
        return None
    if not isinstance(secrets, dict):
        raise Invalid("secrets must be an object of named parameters", pointer="/secrets")
    return SecretsPatch(msgspec.json.encode(secrets).decode())


def read_replacement(data: bytes, key: str | None) -> Draft:
    """Return the draft of a complete job with the given key, for a job that may already exist.

    Read-only fields are ignored, so that the response to a GET can be sent back. Without the field `secrets` the old
    secrets are kept, because clients cannot read them.
    """
    _refuse_incomplete(decode_object(data))
    fields = _fields(data)
    body = decode(msgspec.json.encode(fields), JobBody)
    if body.key not in (None, key):
        raise Invalid(
            f"this job has the key {key!r}, which cannot change; leave the field out, or create another job",
            pointer="/key",
        )
    body.key = key
    draft = _single_draft(body)
    return draft if "secrets" in fields else replace(draft, secrets=UNCHANGED)


def _refuse_incomplete(document: dict[str, Any]) -> None:
    """Raise Incomplete for a job as a list shows it, because writing that would erase what the list left out."""
    omitted = document.get("omitted")
    if omitted:
        names = ", ".join(map(str, omitted)) if isinstance(omitted, list) else str(omitted)
        raise Incomplete(
            f"this document lacks {names[:200]}, which its list left out; send back what GET of the job itself returns",
            pointer="/omitted",
        )


def _fields(data: bytes) -> dict[str, Raw]:
    """Return the writable fields of a JSON object, undecoded."""
    decode_object(data)
    return {name: raw for name, raw in _FIELDS.decode(data).items() if name not in READ_ONLY}


def _definition(overview: Overview) -> dict[str, Any]:
    """Return the writable fields of a job as responses show them, without its parameters, which may be large."""
    shown = msgspec.json.decode(msgspec.json.encode(job_view(replace(overview, params=None))))
    return {name: value for name, value in shown.items() if name not in READ_ONLY}


def read_params(raw: Raw | UnsetType) -> str | None:
    """Return parameters as JSON text; None when the field is absent or null."""
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


def _single_draft(body: JobBody) -> Draft:
    """Return the draft of a job that is not part of a batch."""
    if body.idempotency_key is not None:
        raise Invalid(
            "idempotency_key is for jobs in a batch; send the header Idempotency-Key instead",
            pointer="/idempotency_key",
        )
    return _draft(body)


def _draft(body: JobBody) -> Draft:
    _refuse_unsupported(body)
    return Draft(
        task=body.task,
        params=read_params(body.params) or "{}",
        secrets=_read_secrets(body.secrets),
        name=body.name,
        key=body.key,
        labels=MappingProxyType(body.labels) if body.labels else NO_LABELS,
        schedule="now" if body.schedule is None else body.schedule,
        queue=body.queue,
        priority=body.priority,
        ordering_key=body.ordering_key,
        policy=_policy(body),
        retry=None if body.retry is None else _retry(body.retry),
        max_retries=body.max_retries,
        timeout=_duration(body.timeout_seconds),
        allow_unknown_task=bool(body.allow_unknown_task),
    )


def _refuse_unsupported(body: JobBody) -> None:
    if body.notify is not UNSET and bytes(body.notify) != b"null":
        raise NotSupported("the field notify", pointer="/notify")
    if body.overlap in UNSUPPORTED_OVERLAPS:
        raise NotSupported(f"overlap: {body.overlap}", pointer="/overlap")


def _read_secrets(raw: Raw | UnsetType) -> str | None:
    """Return secrets as JSON text; they are checked when they are encrypted."""
    return None if isinstance(raw, UnsetType) or bytes(raw) == b"null" else bytes(raw).decode()


def _policy(body: JobBody) -> Policy:
    """Return the policy without retries and timeout, whose defaults depend on the task."""
    return policy_of(
        start_within=body.start_within_seconds,
        overlap=body.overlap,
        misfire=body.misfire,
        catchup=body.catchup_seconds,
        on_failure=body.on_failure,
    )


def _retry(body: RetryBody) -> RetryPolicy:
    default = RetryPolicy()
    return RetryPolicy(
        initial=default.initial if body.initial_seconds is None else timedelta(seconds=body.initial_seconds),
        factor=default.factor if body.factor is None else body.factor,
        maximum=default.maximum if body.max_seconds is None else timedelta(seconds=body.max_seconds),
        jitter=default.jitter if body.jitter is None else body.jitter,
    )


def _not_writable(name: str) -> Fault:
    if name in READ_ONLY:
        return Fault(f"/{name}", f"{name} is read-only; it is set by the server")
    return unknown_field(name, JobBody)


def _duration(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
