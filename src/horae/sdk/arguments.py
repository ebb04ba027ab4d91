"""Encodes the arguments of a call as JSON parameters, and checks that the task accepts them."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from horae.core.errors import Invalid
from horae.tasks.binding import InvalidParams
from horae.tasks.registry import AnyTask

_ENCODER = msgspec.json.Encoder()
_ENCODE = _ENCODER.encode
_JSON_TYPES = "numbers, text, lists, dicts, dataclasses, dates"


class ArgumentEncoder:
    """Encodes the arguments of one task."""

    def __init__(self, task: AnyTask) -> None:
        self._task = task

    def encode(self, args: tuple[object, ...], kwargs: Mapping[str, object], secrets: str | None = None) -> str:
        """Encode the arguments as JSON text; raises TypeError or Invalid where a call of the function would fail.

        `secrets` (JSON text) are further parameters, which are checked here and sent separately.
        """
        given = self._named(args, kwargs) if args else kwargs
        try:
            params = _ENCODE(given).decode()
        except (TypeError, ValueError, RecursionError) as exc:
            raise TypeError(self._encoding_error(given, exc)) from exc
        self._check(params if secrets is None else _with_secrets(params, secrets))
        return params

    def encode_all(self, calls: Iterable[Mapping[str, object]], secrets: str | None = None) -> list[str]:
        """Encode the arguments of many calls; raises as `encode` does for the first one that is wrong."""
        given = list(calls)
        texts = None if secrets is not None else self._encoded_at_once(given)
        return [self.encode((), call, secrets) for call in given] if texts is None else texts

    def _encoded_at_once(self, calls: Sequence[Mapping[str, object]]) -> list[str] | None:
        """Encode many calls as lines, in a third of the time; None when some may be wrong."""
        try:
            lines = _ENCODER.encode_lines(calls)
        except (TypeError, ValueError, RecursionError):
            return None
        texts = lines.decode().split("\n")[:-1]
        return texts if self._task.accepts_lines(lines) and len(texts) == len(calls) else None

    def _check(self, params: str) -> None:
        try:
            self._task.bind(params)
        except InvalidParams as exc:
            self._raise_as_a_call_would(msgspec.json.decode(params))
            raise Invalid(f"the arguments do not fit the task {self._task.name}: {exc}", faults=exc.faults) from exc

    def _named(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Mapping[str, object]:
        """Return all arguments by name."""
        try:
            bound = self._signature.bind_partial(*args, **kwargs)
        except TypeError as exc:
            raise TypeError(f"{self._task.name}: {exc}") from None
        given: dict[str, object] = {}
        for name, value in bound.arguments.items():
            match self._signature.parameters[name].kind:
                case inspect.Parameter.VAR_POSITIONAL:
                    raise TypeError(f"{self._task.name}: arguments are sent by name, so *{name} cannot be sent")
                case inspect.Parameter.VAR_KEYWORD:
                    given.update(value)
                case _:
                    given[name] = value
        return given

    def _raise_as_a_call_would(self, given: object) -> None:
        """Raise the TypeError of a Python call for missing or surplus arguments."""
        if not isinstance(given, Mapping):
            raise TypeError(self._not_a_dict(given))
        try:
            self._signature.bind(**given)
        except TypeError as exc:
            raise TypeError(f"{self._task.name}: {exc}") from None

    @cached_property
    def _signature(self) -> inspect.Signature:
        """The function's signature without injected parameters."""
        signature = inspect.signature(self._task.function)
        given = [p for p in signature.parameters.values() if p.name not in self._task.injected]
        return signature.replace(parameters=given)

    def _not_a_dict(self, given: object) -> str:
        return f"{self._task.name}: the arguments of one submission are a dict, not {given!r}"

    def _encoding_error(self, given: Any, exc: Exception) -> str:
        if not isinstance(given, Mapping):
            return self._not_a_dict(given)
        for name, value in given.items():
            try:
                _ENCODE(value)
            except (TypeError, ValueError, RecursionError) as why:
                return f"{self._task.name}: the argument {name!r} cannot be sent as JSON ({why}); use {_JSON_TYPES}"
        return f"{self._task.name}: the arguments cannot be sent as JSON ({exc})"


def _with_secrets(params: str, secrets: str) -> str:
    from horae.secrets.sealer import merged  # late: most submissions have no secrets

    return merged(params, secrets)
