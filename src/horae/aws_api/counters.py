"""What was asked of a service, by the verb of Horae and the action of the service: for metrics, the bench and tests."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from typing import Any
from weakref import WeakSet

from horae.aws_api.errors import NotSent, OutcomeUnknown, RequestConflict, RequestThrottled
from horae.core.errors import HoraeError

_verb: ContextVar[str] = ContextVar("aws_verb", default="")

READS = frozenset({"BatchGetItem", "GetItem", "Query", "Scan", "TransactGetItems"})


@dataclass(slots=True)
class RequestTally:
    """What one action was used for, and what that took."""

    calls: int = 0  # of the client; each is one or more requests
    requests: int = 0
    throttled: int = 0  # requests that did nothing because there was too much at once
    conflicts: int = 0  # requests that did nothing because of another transaction
    unsent: int = 0
    unknown: int = 0  # requests of which nobody knows whether they were done
    refused: int = 0  # requests that were answered with an error that repeating does not change
    read_units: float = 0.0
    write_units: float = 0.0
    bytes_sent: int = 0
    seconds: float = 0.0  # that requests took, without the waits between them

    def __iadd__(self, other: "RequestTally") -> "RequestTally":
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        return self

    def sent(self, size: int, seconds: float) -> None:
        """Count a request, whatever came of it."""
        self.requests += 1
        self.bytes_sent += size
        self.seconds += seconds

    def failed(self, error: HoraeError) -> None:
        """Count a request that brought an error."""
        match error:
            case RequestThrottled():
                self.throttled += 1
            case RequestConflict():
                self.conflicts += 1
            case NotSent():
                self.unsent += 1
            case OutcomeUnknown():
                self.unknown += 1
            case _:
                self.refused += 1

    def outcomes(self) -> dict[str, int]:
        """Return how many requests came to what."""
        failed = {
            "throttled": self.throttled,
            "conflict": self.conflicts,
            "unsent": self.unsent,
            "unknown": self.unknown,
            "refused": self.refused,
        }
        return {"answered": self.requests - sum(failed.values()), **failed}

    def consumed(self, action: str, statement: str, answer: Mapping[str, Any]) -> None:
        """Add the capacity units that an answer reports."""
        reported = answer.get("ConsumedCapacity")
        if reported is None:
            return
        reads = action in READS or statement[:6].upper() == "SELECT"
        for each in reported if isinstance(reported, list) else [reported]:
            read, write = each.get("ReadCapacityUnits"), each.get("WriteCapacityUnits")
            if read is None and write is None:
                read, write = (each.get("CapacityUnits"), 0) if reads else (0, each.get("CapacityUnits"))
            self.read_units += read or 0
            self.write_units += write or 0


class Counters:
    """Tallies by verb and action; several clients may share them."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str], RequestTally] = {}
        _all.add(self)

    def of(self, action: str) -> RequestTally:
        """Return the tally of an action under the verb at hand."""
        place = (_verb.get(), action)
        found = self._tallies.get(place)
        if found is None:
            found = self._tallies[place] = RequestTally()
        return found

    def by_verb_and_action(self) -> Mapping[tuple[str, str], RequestTally]:
        """Return all tallies; a verb is empty where none was named."""
        return self._tallies

    def by_action(self) -> Mapping[str, RequestTally]:
        """Return the tallies of each action, whatever the verb."""
        return _summed((action, tally) for (_, action), tally in self._tallies.items())

    def by_verb(self) -> Mapping[str, RequestTally]:
        """Return the tallies of each verb, whatever the action."""
        return _summed((verb, tally) for (verb, _), tally in self._tallies.items())

    def total(self) -> RequestTally:
        """Return everything together."""
        total = RequestTally()
        for tally in self._tallies.values():
            total += tally
        return total

    def reset(self) -> None:
        """Begin again at nothing."""
        self._tallies.clear()


_all: WeakSet[Counters] = WeakSet()


def process_tallies() -> Mapping[str, RequestTally]:
    """Return the tallies of each action, of all clients that this process has."""
    return _summed(item for counters in list(_all) for item in counters.by_action().items())


def _summed(tallies: Iterable[tuple[str, RequestTally]]) -> dict[str, RequestTally]:
    sums: dict[str, RequestTally] = {}
    for name, tally in tallies:
        sums.setdefault(name, RequestTally())
        sums[name] += tally
    return sums


@contextmanager
def counted_as(verb: str) -> Iterator[None]:
    """Count requests in this context, and in tasks that are created in it, under a verb of Horae such as `claim`."""
    token = _verb.set(verb)
    try:
        yield
    finally:
        _verb.reset(token)
