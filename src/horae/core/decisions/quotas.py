"""Quotas: how much an owner may keep in the store, how much it has, and which limit a request would pass."""

from collections.abc import Set as AbstractSet
from typing import Annotated, Protocol

from msgspec import Meta

from horae.core.values import Value

Count = Annotated[int, Meta(ge=0, le=2**62)]  # 0: no limit


class Limits(Value, frozen=True, kw_only=True):
    """How much one owner may keep; 0 means any amount."""

    waiting: Count = 2_000_000  # runs that have not ended: one-shot jobs, and what others have planned
    recurring: Count = 50_000  # jobs that have not ended
    queues: Count = 1_000  # with runs or recurring jobs that have not ended
    stored_bytes: Count = 50_000_000_000  # of parameters, labels, secrets and results, ended runs included


UNLIMITED = Limits(waiting=0, recurring=0, queues=0, stored_bytes=0)
NOUNS = {
    "waiting": "waiting jobs",
    "recurring": "recurring jobs",
    "queues": "queues in use",
    "stored_bytes": "stored bytes",
}
REMEDIES = {
    "waiting": "wait until some have run, or cancel some",
    "recurring": "cancel some",
    "queues": "use one that has jobs already, or wait until one of them is empty",
    "stored_bytes": "send less with each job, or wait until old history is deleted",
}


class Amount(Value, frozen=True, kw_only=True):
    """What a request would add, or a page of what is there."""

    waiting: int = 0
    recurring: int = 0
    queues: frozenset[str] = frozenset()
    stored_bytes: int = 0

    def __bool__(self) -> bool:
        return bool(self.waiting or self.recurring or self.queues or self.stored_bytes)


NOTHING = Amount()


class Used(Protocol):
    """What an owner keeps."""

    @property
    def waiting(self) -> int: ...

    @property
    def recurring(self) -> int: ...

    @property
    def queues(self) -> AbstractSet[str]: ...

    @property
    def stored_bytes(self) -> int: ...


class Excess(Value, frozen=True, kw_only=True):
    """A limit that a request would pass."""

    resource: str
    limit: int
    used: int
    wanted: int

    def __str__(self) -> str:
        return (
            f"the owner has {self.used:,} {NOUNS[self.resource]}, the request adds {self.wanted:,}, and the limit is"
            f" {self.limit:,}: {REMEDIES[self.resource]}, or ask the operator for a higher limit"
            f" (HORAE_MAX_{self.resource.upper()})"
        )


def excess(limits: Limits, used: Used, wanted: Amount) -> Excess | None:
    """Return the first limit that would be passed; one that is passed already refuses only what would add to it."""
    for resource, limit, there, more in (
        ("waiting", limits.waiting, used.waiting, wanted.waiting),
        ("recurring", limits.recurring, used.recurring, wanted.recurring),
        ("queues", limits.queues, len(used.queues), len(wanted.queues - used.queues) if wanted.queues else 0),
        ("stored_bytes", limits.stored_bytes, used.stored_bytes, wanted.stored_bytes),
    ):
        if limit and more and there + more > limit:
            return Excess(resource=resource, limit=limit, used=there, wanted=more)
    return None
