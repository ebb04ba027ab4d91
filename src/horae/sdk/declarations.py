"""The schedules of `@app.schedule(...)`, checked when the code is loaded and written when a worker starts."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from horae.core.drafts import Declared
from horae.core.errors import Conflict, InvalidSchedule
from horae.core.schedule.evaluate import is_recurring
from horae.core.schedule.parse import parse_schedule, schedule_to_wire
from horae.core.schedule.types import Schedule
from horae.schedules import EPOCH
from horae.sdk.options import ScheduleOptions, job_options
from horae.tasks.registry import AnyTask

When = Schedule | str | Mapping[str, object]  # cron(...), every(...), or any form of the REST API


class Declarations:
    """The schedules of one application, by key."""

    def __init__(self) -> None:
        self._declared: dict[str, Declared] = {}

    def all(self) -> Sequence[Declared]:
        """Return all schedules, in the order of declaration."""
        return list(self._declared.values())

    def add(
        self, task: AnyTask, when: When, *, key: str | None, params: Mapping[str, Any] | None, options: ScheduleOptions
    ) -> None:
        """Declare a schedule of the task; its default key is the name of the task, with a number from the second on."""
        key = key or self._free_key(task.name)
        if key in self._declared:
            raise Conflict(f"there is already a schedule with the key {key!r}; give one of them another key=")
        encoded = msgspec.json.encode(params or {}, order="deterministic").decode()
        draft = job_options({**options, "key": key}).draft(task.name, encoded, schedule_to_wire(_recurring(when)))
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
            "a declared schedule must recur: use cron(...), every(...) or a calendar; to run a task once, submit it"
        )
    return schedule
