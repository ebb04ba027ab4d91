"""Where an answer leads: the operations that its ids can be used with, as OpenAPI links."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An operation that a link may lead to."""

    id: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """A value in an answer, and where it can be used: as a parameter of operations on a path and below it."""

    value: str  # a JSON pointer into the answer
    path: str
    param: str | None = "id"  # None: as the only one of `ids` in the body


_JOB, _RUN = "/v1/jobs/{id}", "/v1/runs/{id}"
_LEADS: Mapping[str, Sequence[Lead]] = {  # by the public name of the answer's type
    "Job": (Lead(value="/id", path=_JOB), Lead(value="/key", path="/v1/jobs/by-key/{key}", param="key")),
    "Run": (Lead(value="/id", path=_RUN), Lead(value="/job_id", path=_JOB)),
    "Status": (Lead(value="/run_id", path=_RUN), Lead(value="/job_id", path=_JOB)),
    "Batch": (Lead(value="/items/0/id", path=_JOB),),
    "JobPage": (Lead(value="/items/0/id", path=_JOB),),
    "RunPage": (Lead(value="/items/0/id", path=_RUN),),
    "Backfill": (Lead(value="/job_id", path=_JOB),),
    "DeadLetterPage": (
        Lead(value="/items/0/id", path=_RUN),
        Lead(value="/items/0/id", path="/v1/dead-letters/", param=None),
    ),
    "QueuePage": (Lead(value="/items/0/name", path="/v1/queues/{name}", param="name"),),
}


def links_of(answer: str, targets: Iterable[Target]) -> dict[str, dict[str, Any]]:
    """The links of an answer, by the operations that they lead to."""
    leads = _LEADS.get(answer, ())
    return {target.id: _link(target, lead) for target in targets for lead in leads if target.path.startswith(lead.path)}


def _link(target: Target, lead: Lead) -> dict[str, Any]:
    value = f"$response.body#{lead.value}"
    if lead.param is None:
        return {"operationId": target.id, "requestBody": {"ids": [value]}}
    return {"operationId": target.id, "parameters": {lead.param: value}}
