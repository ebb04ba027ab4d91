"""Binds JSON parameters to the arguments of a function, and derives their JSON schema from its signature."""

import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Union

import msgspec
from msgspec.structs import asdict

from horae.core.errors import Fatal, Fault
from horae.core.wording.fault_words import Schema, plain_words
from horae.core.wording.json_schema import pointer
from horae.run import Run
from horae.tasks.param_schema import schema_faults
from horae.tasks.tools import Tools

Arguments = dict[str, Any]

_PATH = re.compile(r" - at `\$(.*)`$", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")
_NO_ARGUMENTS: Arguments = {}


class InvalidParams(Fatal):
    """Parameters that do not fit the task; a retry would not help."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("; ".join(f"{fault.pointer.removeprefix('/')}: {fault.detail}" for fault in faults))
        self.faults = tuple(faults)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter that the caller passes."""

    name: str
    type: Any
    required: bool
    default: object = None


class Binding:
    """The parameters of one function; expensive parts are computed once, at first use."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function
        self._signature = inspect.signature(function)
        for parameter in self._signature.parameters.values():
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise TypeError(f"a task takes its parameters by name, but {parameter.name!r} is positional-only")

    @cached_property
    def injected(self) -> Mapping[str, str]:
        """Parameters that Horae passes instead of the caller: name → `run` (only the first) or `tools`."""
        found = {}
        for position, (name, parameter) in enumerate(self._signature.parameters.items()):
            annotation = self._annotation(parameter)
            if position == 0 and (annotation is Run or annotation in ("Run", "horae.Run")):
                found[name] = "run"
            elif annotation is Tools:
                found[name] = "tools"
        return found

    @cached_property
    def parameters(self) -> Sequence[Parameter]:
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        return [
            Parameter(
                name=name,
                type=_supported(self._annotation(parameter)),
                required=parameter.default is parameter.empty,
                default=parameter.default,
            )
            for name, parameter in self._signature.parameters.items()
            if parameter.kind in named and name not in self.injected
        ]

    @cached_property
    def returns(self) -> Any:
        """The annotated return type; Any if there is none, or msgspec cannot convert to it."""
        annotation = self._signature.return_annotation
        return Any if annotation is inspect.Signature.empty else _supported(self._resolved(annotation))

    @cached_property
    def accepts_any_name(self) -> bool:
        """Whether the function accepts further names (`**kwargs`)."""
        return any(p.kind is p.VAR_KEYWORD for p in self._signature.parameters.values())

    @cached_property
    def schema(self) -> Schema:
        """The JSON schema of the parameters, as one object."""
        types = [parameter.type for parameter in self.parameters]
        schemas, components = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
        properties = {p.name: _with_default(p, schema) for p, schema in zip(self.parameters, schemas, strict=True)}
        schema: dict[str, object] = {"type": "object", "properties": properties}
        if text := inspect.getdoc(self._function):
            schema["description"] = text
        if required := [p.name for p in self.parameters if p.required]:
            schema["required"] = required
        if not self.accepts_any_name:
            schema["additionalProperties"] = False
        if components:
            schema["$defs"] = components
        return schema

    def bind(self, params: str) -> Arguments:
        """Decode a JSON object into arguments of the annotated types; raises InvalidParams."""
        if params == "{}" and self._all_optional:
            return _NO_ARGUMENTS
        try:
            if self.accepts_any_name:
                return self._bind_any_name(params)
            values = self._decoder.decode(params)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as exc:
            raise InvalidParams(self.faults(params) or [Fault("/params", str(exc))]) from None
        return asdict(values) if self._all_required else self._given(values)

    def faults(self, params: str | Mapping[str, object]) -> list[Fault]:
        """The faults of the parameters, each with its JSON pointer."""
        if isinstance(params, str) and not self.accepts_any_name and self._fits(params):
            return []
        if faults := schema_faults(self.schema, params):
            return faults
        given = msgspec.json.decode(params) if isinstance(params, str) else params
        return [fault for p in self.parameters if p.name in given for fault in _type_faults(p, given[p.name])]

    def accepts_lines(self, lines: bytes) -> bool:
        """Whether many parameters, one JSON object a line, can be bound; False also if they must be bound to know."""
        if self.accepts_any_name:
            return False
        try:
            self._decoder.decode_lines(lines)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return False
        return True

    def _fits(self, params: str) -> bool:
        """Whether they can be decoded; four times as fast as to search for faults."""
        try:
            self._decoder.decode(params)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return False
        return True

    @cached_property
    def _all_optional(self) -> bool:
        return not any(parameter.required for parameter in self.parameters)

    @cached_property
    def _all_required(self) -> bool:
        return all(parameter.required for parameter in self.parameters)

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any]:
        """Decodes and converts in one step; absent values stay unset, so that the function's own defaults apply."""
        fields: list[Any] = [
            (p.name, p.type) if p.required else (p.name, Union[p.type, msgspec.UnsetType], msgspec.UNSET)  # noqa: UP007
            for p in self.parameters
        ]
        struct = msgspec.defstruct("Params", fields, kw_only=True, forbid_unknown_fields=not self.accepts_any_name)
        return msgspec.json.Decoder(struct)

    def _bind_any_name(self, params: str) -> Arguments:
        given = msgspec.json.decode(params, type=dict[str, Any])
        values = msgspec.convert(given, self._decoder.type)
        return {**given, **self._given(values)}

    def _given(self, values: msgspec.Struct) -> Arguments:
        """Drop absent values, so that the function's own defaults apply."""
        return {name: value for name, value in asdict(values).items() if value is not msgspec.UNSET}

    def _annotation(self, parameter: inspect.Parameter) -> Any:
        return Any if parameter.annotation is parameter.empty else self._resolved(parameter.annotation)

    def _resolved(self, annotation: Any) -> Any:
        """The annotation as a type, or as text if it cannot be resolved (a name imported only for type checkers)."""
        if not isinstance(annotation, str):
            return annotation
        scope = vars(sys.modules.get(self._function.__module__, sys)) | getattr(self._function, "__globals__", {})
        try:
            return eval(annotation, scope)
        except (NameError, AttributeError, TypeError, SyntaxError):
            return annotation


def _supported(annotation: Any) -> Any:
    """The type if msgspec can convert to it, else Any, which passes values on as decoded."""
    if isinstance(annotation, str):
        return Any
    try:
        msgspec.json.schema_components([annotation])
        msgspec.json.Decoder(annotation)
    except (TypeError, NameError, RuntimeError, AttributeError):
        return Any
    return annotation


def _with_default(parameter: Parameter, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    if parameter.required:
        return schema
    try:
        return {**schema, "default": msgspec.to_builtins(parameter.default)}
    except (TypeError, ValueError):
        return schema


def _type_faults(parameter: Parameter, value: object) -> list[Fault]:
    try:
        # checks what the schema does not, such as dates; through JSON, as the worker will read it
        msgspec.json.decode(msgspec.json.encode(value), type=parameter.type)
    except msgspec.ValidationError as exc:
        path = _PATH.search(str(exc))
        detail = str(exc)[: path.start()] if path else str(exc)
        place = pointer("/params", parameter.name, *_steps(path[1] if path else ""))
        return [Fault(place, plain_words(detail), may_quote=True)]
    except (TypeError, ValueError) as exc:
        return [Fault(pointer("/params", parameter.name), str(exc), may_quote=True)]
    return []


def _steps(path: str) -> list[str]:
    return [name or index for name, index in _STEP.findall(path.replace("[...]", ""))]
