"""From the arguments of a call to the parameters that are sent: JSON text that the task is known to take."""

import inspect
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import msgspec

from horae.core.errors import Invalid
from horae.tasks.binding import InvalidParams
from horae.tasks.registry import AnyTask

_ENCODE = msgspec.json.Encoder().encode
_PLAIN = "numbers, text, lists, dicts, dataclasses, dates"


class Arguments:
    """Encodes the arguments of one task."""

    def __init__(self, task: AnyTask) -> None:
        self._task = task

    def encode(self, args: tuple[object, ...], kwargs: Mapping[str, object], secrets: str | None = None) -> str:
        """The parameters that a call stands for; raises TypeError or Invalid where a call would fail.

        `secrets` (JSON text) are parameters, too, but sent apart.
        """
        given = self._named(args, kwargs) if args else kwargs
        try:
            params = _ENCODE(given).decode()
        except (TypeError, ValueError, RecursionError) as exc:
            raise TypeError(self._why_not_sent(given, exc)) from exc
        self._check(params if secrets is None else _with_secrets(params, secrets))
        return params

    def _check(self, params: str) -> None:
        try:
            self._task.bind(params)
        except InvalidParams as exc:
            self._refuse_wrong_call(msgspec.json.decode(params))
            raise Invalid(f"the arguments do not fit the task {self._task.name}: {exc}", faults=exc.faults) from exc

    def _named(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Mapping[str, object]:
        """Positional arguments by their names."""
        try:
            bound = self._signature.bind_partial(*args, **kwargs)
        except TypeError as exc:
            raise TypeError(f"{self._task.name}: {exc}") from None
        given: dict[str, object] = {}
        for name, value in bound.arguments.items():
            match self._signature.parameters[name].kind:
                case inspect.Parameter.VAR_POSITIONAL:
                    raise TypeError(f"{self._task.name}: what is sent has a name; *{name} cannot be sent")
                case inspect.Parameter.VAR_KEYWORD:
                    given.update(value)
                case _:
                    given[name] = value
        return given

    def _refuse_wrong_call(self, given: object) -> None:
        """Complain as Python does about arguments that are missing or too many."""
        if not isinstance(given, Mapping):
            raise TypeError(self._not_named(given))
        try:
            self._signature.bind(**given)
        except TypeError as exc:
            raise TypeError(f"{self._task.name}: {exc}") from None

    @cached_property
    def _signature(self) -> inspect.Signature:
        """What the caller gives: the function's own signature without what is injected."""
        signature = inspect.signature(self._task.function)
        theirs = [p for p in signature.parameters.values() if p.name not in self._task.injected]
        return signature.replace(parameters=theirs)

    def _not_named(self, given: object) -> str:
        return f"{self._task.name}: the arguments of one submission are a dict of names, not {given!r}"

    def _why_not_sent(self, given: Any, exc: Exception) -> str:
        if not isinstance(given, Mapping):
            return self._not_named(given)
        for name, value in given.items():
            try:
                _ENCODE(value)
            except (TypeError, ValueError, RecursionError) as why:
                return f"{self._task.name}: the argument {name!r} cannot be sent as JSON ({why}); send {_PLAIN}"
        return f"{self._task.name}: the arguments cannot be sent as JSON ({exc})"


def _with_secrets(params: str, secrets: str) -> str:
    from horae.secrets.sealer import merged  # late: most submissions have none

    return merged(params, secrets)
