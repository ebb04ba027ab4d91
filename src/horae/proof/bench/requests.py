"""Requests and capacity units of a benchmark on Amazon's services, counted in each of its processes.

Each process writes what its clients have counted to a file of its own, a few times a second; the benchmark adds up.
"""

import json
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from horae.aws_api.counters import RequestTally, process_tallies
from horae.core.values import Value
from horae.size.prices import Prices

WRITE_EVERY = 0.2  # seconds
SETTLED = 3 * WRITE_EVERY  # seconds after which every file has what was counted before
FIGURES = ("requests", "sqs_requests", "write_units", "read_units", "throttled")


class ServiceUsage(Value, frozen=True, kw_only=True):
    """What was asked of DynamoDB and SQS, and what that used."""

    requests: float = 0.0  # of DynamoDB
    sqs_requests: float = 0.0
    write_units: float = 0.0
    read_units: float = 0.0
    throttled: float = 0.0  # requests of both that did nothing because there was too much at once

    def __add__(self, other: "ServiceUsage") -> "ServiceUsage":
        return ServiceUsage(**{name: getattr(self, name) + getattr(other, name) for name in FIGURES})

    def __sub__(self, other: "ServiceUsage") -> "ServiceUsage":
        return ServiceUsage(**{name: getattr(self, name) - getattr(other, name) for name in FIGURES})


def is_counted(*addresses: str) -> bool:
    """Return whether one of these addresses of a store or queue is of a service that bills by requests."""
    return any(address.startswith(("dynamodb:", "sqs:")) for address in addresses)


def usage_of_process() -> ServiceUsage:
    """Return what all clients of this process have counted."""
    return usage_of(process_tallies())


def usage_of(tallies: Mapping[str, RequestTally]) -> ServiceUsage:
    """Add up tallies by action; those of SQS are about messages and queues."""
    usage = ServiceUsage()
    for action, tally in tallies.items():
        is_sqs = "Message" in action or "Queue" in action
        usage += ServiceUsage(
            requests=0 if is_sqs else tally.requests,
            sqs_requests=tally.requests if is_sqs else 0,
            write_units=tally.write_units,
            read_units=tally.read_units,
            throttled=tally.throttled,
        )
    return usage


def write_usage_forever(folder: Path) -> None:
    """Write the usage of this process to its file, again and again, in a thread of its own."""
    threading.Thread(target=_write_forever, args=(folder,), name="horae-usage", daemon=True).start()


def _write_forever(folder: Path) -> None:
    while write_usage(folder):
        time.sleep(WRITE_EVERY)


def write_usage(folder: Path) -> bool:
    """Write the usage of this process to its file, all at once; False when the folder is gone."""
    path = folder / f"{os.getpid()}.usage"
    draft = path.with_suffix(".draft")
    usage = usage_of_process()
    try:
        draft.write_text(json.dumps({name: getattr(usage, name) for name in FIGURES}))
        draft.replace(path)
    except FileNotFoundError:
        return False  # the benchmark is over
    return True


def read_usage(folder: Path) -> ServiceUsage:
    """Return what all processes with a file have counted, and this one."""
    usage = usage_of_process()
    for path in folder.glob("*.usage"):
        usage += ServiceUsage(**json.loads(path.read_text()))
    return usage


def usage_figures(usage: ServiceUsage, jobs: int, prices: Prices) -> dict[str, Any] | None:
    """Return units and requests of a job, and dollars for a million; None where nothing was counted."""
    if not jobs or not usage.requests + usage.sqs_requests:
        return None
    units = {name: round(getattr(usage, name) / jobs, 3) for name in FIGURES[:4]}
    dollars = {  # of a million jobs; prices are of a million units
        "writes": usage.write_units / jobs * prices.write_units_million,
        "reads": usage.read_units / jobs * prices.read_units_million,
        "sqs": usage.sqs_requests / jobs * prices.sqs_requests_million,
    }
    dollars["total"] = sum(dollars.values())
    return {
        **units,
        "throttled": int(usage.throttled),
        "dollars_per_million": {name: round(each, 3) for name, each in dollars.items()},
        "prices": f"{prices.region} on demand, {prices.as_of}",
    }
