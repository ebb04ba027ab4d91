"""What `@app.schedule(...)` declares: checked when the code is loaded, brought to the store when a worker starts."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from horae.core.errors import Conflict, InvalidSchedule
from horae.core.schedule.evaluate import is_recurring
from horae.core.schedule.parse import parse_schedule, schedule_to_wire
from horae.core.schedule.types import Schedule
from horae.jobs.declared import Declared
from horae.schedules import EPOCH
from horae.sdk.options import Repeating, choices
from horae.tasks.registry import AnyTask

When = Schedule | str | Mapping[str, object]  # cron(...), every(...), or any form of the REST API


class Declarations:
    """The schedules of one application, each under its key."""

    def __init__(self) -> None:
        self._declared: dict[str, Declared] = {}

    def all(self) -> Sequence[Declared]:
        """In the order of their declaration."""
        return list(self._declared.values())

    def add(
        self, task: AnyTask, when: When, *, key: str | None, params: Mapping[str, Any] | None, options: Repeating
    ) -> None:
        """Declare that the task runs by a schedule; the key is the task's name, with a number from the second on."""
        key = key or self._free_key(task.name)
        if key in self._declared:
            raise Conflict(f"there is already a schedule with the key {key!r}; give one of them another key=")
        sent = msgspec.json.encode(params or {}, order="deterministic").decode()
        draft = choices({**options, "key": key}).draft(task.name, sent, schedule_to_wire(_recurring(when)))
        self._declared[key] = Declared(key=key, draft=draft)

    def _free_key(self, name: str) -> str:
        number, key = 1, name
        while key in self._declared:
            number += 1
            key = f"{name}:{number}"
        return key


def _recurring(when: When) -> Schedule:
    schedule = parse_schedule(when, now=EPOCH) if isinstance(when, str | Mapping) else when
    if not is_recurring(schedule):
        raise InvalidSchedule(
            "what is declared in code repeats: use cron(...), every(...) or a calendar; to run it once, submit it"
        )
    return schedule
