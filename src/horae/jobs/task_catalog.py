"""The known tasks: those of this process, and those that any node ever registered."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache

import msgspec

from horae.core.drafts import TaskDefaults
from horae.core.errors import Fault, Invalid, UnknownTask
from horae.core.records import TaskSchema
from horae.core.wording.fault_words import Schema
from horae.core.wording.suggestions import closest
from horae.ports.clock import Clock
from horae.ports.reader import Reader
from horae.secrets.redaction import Redactor
from horae.secrets.sealer import merged
from horae.tasks.param_schema import schema_faults

FRESH_SECONDS = 5.0  # how long tasks are cached; before a task is refused, they are always read again

CheckParams = Callable[[str, str], Sequence[Fault]]


class TaskCatalog:
    """Finds tasks and their defaults by name, and checks parameters."""

    def __init__(
        self,
        store: Reader,
        clock: Clock,
        *,
        defaults: Callable[[str], TaskDefaults | None],
        check_params: CheckParams,
    ) -> None:
        self._store = store
        self._clock = clock
        self.defaults = defaults  # None for a task that this process does not know
        self._check_params = check_params
        self._schemas: Mapping[str, str] = {}
        self._read = 0  # the number of the read that they are from
        self._read_at: float | None = None
        self.reads = 0  # of the store, that have started

    async def schemas(self) -> Mapping[str, str]:
        """Return every registered task with the JSON schema of its parameters."""
        if self._read_at is None or self._clock.elapsed() - self._read_at > FRESH_SECONDS:
            await self._refresh()
        return self._schemas

    async def require(self, task: str, *, since: int | None = None) -> None:
        """Raise UnknownTask unless this process or some node knows the task.

        `since` is the value of `reads` when the request began: unknown tasks of one request share one later read.
        """
        since = self.reads if since is None else since
        if self.defaults(task) is not None or task in await self.schemas():
            return
        if self._read <= since:
            await self._refresh()
        if task not in self._schemas:
            raise UnknownTask(task, _hint(task, self._schemas))

    def check(self, task: str, params: str, secrets: str | None = None) -> None:
        """Raise Invalid when the parameters do not fit the task, by its function or else its JSON schema."""
        faults = self._faults(task, params if secrets is None else merged(params, secrets))
        if faults and secrets is not None:
            faults = _secret_faults(faults, secrets)
        if faults:
            first = f"{faults[0].pointer} {faults[0].detail}"
            raise Invalid(f"the parameters do not fit the task {task}: {first}", faults=faults)

    def _faults(self, task: str, params: str) -> Sequence[Fault]:
        if self.defaults(task) is not None:
            return self._check_params(task, params)
        return schema_faults(_decoded(self._schemas[task]), params) if task in self._schemas else ()

    async def _refresh(self) -> None:
        self.reads += 1
        number = self.reads
        schemas = {task.name: task.schema for task in await self._store.records(TaskSchema)}
        if number > self._read:  # otherwise a later read was faster
            self._schemas, self._read = schemas, number
            self._read_at = self._clock.elapsed()


@lru_cache(1000)  # consecutive jobs often have the same task
def _decoded(schema: str) -> Schema:
    decoded: Schema = msgspec.json.decode(schema)
    return decoded


def _secret_faults(faults: Sequence[Fault], secrets: str) -> list[Fault]:
    """Return the faults without values of secrets, and with pointers to the secrets where they are at fault."""
    names = json.loads(secrets).keys()
    redact = Redactor(secrets).text if any(fault.may_quote for fault in faults) else str
    return [Fault(_place(fault.pointer, names), redact(fault.detail)) for fault in faults]


def _place(pointer: str, names: Collection[str]) -> str:
    name = pointer.removeprefix("/params/").partition("/")[0]
    plain = name.replace("~1", "/").replace("~0", "~")
    return pointer.replace("/params/", "/secrets/", 1) if plain in names else pointer


def _hint(task: str, known: Collection[str]) -> str:
    close = closest(task, known)
    return "" if close is None else f" (did you mean {close}?)"
