"""OpenAPI links: the operations that accept the ids in a response."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTarget:
    """An operation to which a link may point."""

    id: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRule:
    """A value in a response, and the path at and below which operations accept it as a parameter."""

    value: str  # a JSON pointer into the response
    path: str
    param: str | None = "id"  # None: as the only element of `ids` in the body


_JOB, _RUN = "/v1/jobs/{id}", "/v1/runs/{id}"
_RULES: Mapping[str, Sequence[LinkRule]] = {  # by the public name of the response's type
    "Job": (LinkRule(value="/id", path=_JOB), LinkRule(value="/key", path="/v1/jobs/by-key/{key}", param="key")),
    "Run": (LinkRule(value="/id", path=_RUN), LinkRule(value="/job_id", path=_JOB)),
    "Status": (LinkRule(value="/run_id", path=_RUN), LinkRule(value="/job_id", path=_JOB)),
    "Batch": (LinkRule(value="/items/0/id", path=_JOB),),
    "JobPage": (LinkRule(value="/items/0/id", path=_JOB),),
    "RunPage": (LinkRule(value="/items/0/id", path=_RUN),),
    "Backfill": (LinkRule(value="/job_id", path=_JOB),),
    "DeadLetterPage": (
        LinkRule(value="/items/0/id", path=_RUN),
        LinkRule(value="/items/0/id", path="/v1/dead-letters/", param=None),
    ),
    "QueuePage": (LinkRule(value="/items/0/name", path="/v1/queues/{name}", param="name"),),
}


def links_of(response: str, targets: Iterable[LinkTarget]) -> dict[str, dict[str, Any]]:
    """Return the links of a response type, by operation id."""
    rules = _RULES.get(response, ())
    return {target.id: _link(target, rule) for target in targets for rule in rules if target.path.startswith(rule.path)}


def _link(target: LinkTarget, rule: LinkRule) -> dict[str, Any]:
    value = f"$response.body#{rule.value}"
    if rule.param is None:
        return {"operationId": target.id, "requestBody": {"ids": [value]}}
    return {"operationId": target.id, "parameters": {rule.param: value}}
