"""Reads request bodies within a limit, decodes them strictly, and explains what is wrong with them."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any, TypeVar, get_args

import msgspec
from starlette.requests import Request

from horae.api.http.admission import admitted_of
from horae.api.http.duplicate_keys import BACKSLASH, refuse_repeated_names
from horae.api.http.operation import header_values
from horae.core.errors import MAX_FAULTS, Fault, Invalid, Malformed, TooLarge
from horae.core.wording.fault_words import plain_words
from horae.core.wording.json_schema import value_faults
from horae.core.wording.suggestions import did_you_mean

MAX_BODY = 11 * 1024 * 1024  # a job with the largest parameters, and some room
MAX_BATCH_BODY = 64 * 1024 * 1024
MAX_DEPTH = 100  # of nested objects and lists
MAX_EXPLAINED = 4 * 1024 * 1024  # bytes; of a larger invalid body only the first error is reported

Body = TypeVar("Body", bound=msgspec.Struct)

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_PATH = re.compile(r" - at `\$(?P<path>.*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]|\[\.\.\.\]")


class EmptyBody(msgspec.Struct, forbid_unknown_fields=True):
    """An object without fields; an absent body means the same."""


_decoder_of = cache(msgspec.json.Decoder)


async def read_body(request: Request, limit: int = MAX_BODY) -> bytes:
    """Return the body of a request; an absent one is an empty object.

    Raises TooLarge as soon as the limit is exceeded, and RateLimited or Unavailable when too many bytes are in memory.
    """
    for declared in header_values(request, b"content-length"):
        if declared.isdecimal() and int(declared[:20]) > limit:
            raise _too_large(limit)
    admitted = admitted_of(request)
    chunks: list[bytes] = []
    size, more = 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise Malformed("the connection closed before the body was complete")
        chunk, more = message.get("body", b""), message.get("more_body", False)
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        if admitted is not None:
            admitted.add_bytes(len(chunk))
        chunks.append(chunk)
    return b"".join(chunks) or b"{}"


def decode(data: bytes, kind: type[Body], *, in_parts: bool = False) -> Body:
    """Decode a body; raises Malformed when it is not JSON, Invalid when it does not fit its type.

    With `in_parts` the text checks are skipped, because each undecoded part goes through `decode` itself.
    """
    try:
        value: Body = _decoder_of(kind).decode(data)
    except msgspec.ValidationError as exc:
        raise _explain(data, kind, exc) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise _malformed(data, exc) from exc
    if not in_parts:
        _refuse_bad_text(data)
        refuse_repeated_names(data, _decode_any(data))
    return value


async def read_empty_body(request: Request) -> None:
    """Read the body of an operation that takes no fields; raises Invalid when it has some."""
    decode(await read_body(request), EmptyBody)


def decode_object(data: bytes) -> dict[str, Any]:
    """Decode a JSON object; raises Malformed or Invalid."""
    try:
        value = _decode_any(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise _malformed(data, exc) from exc
    _refuse_bad_text(data)
    refuse_repeated_names(data, value)
    if not isinstance(value, dict):
        raise Invalid("the body must be a JSON object")
    return value


def unknown_field(name: str, kind: type[msgspec.Struct], pointer: str = "") -> Fault:
    """Return the fault of a field that a type does not have, with a hint."""
    known = _fields_of(kind)
    hint = did_you_mean(name, known) or f"; known fields are {', '.join(known)}"
    return Fault(f"{pointer}/{_escaped(name)}", f"unknown field {name[:100]!r}{hint}")


@cache
def _fields_of(kind: type[msgspec.Struct]) -> Sequence[str]:
    return [field.encode_name for field in msgspec.structs.fields(kind)]


def _decode_any(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.ValidationError as exc:  # a number out of range
        raise _out_of_range(data, exc) from exc


def _out_of_range(data: bytes, exc: msgspec.ValidationError) -> Invalid:
    """Find the field with a number out of range: msgspec reports no names, so each field is decoded by itself."""
    fields = _FIELDS.decode(data) if data.lstrip().startswith(b"{") else {}
    for name, raw in fields.items():
        try:
            msgspec.json.decode(raw)
        except msgspec.ValidationError as inner:
            return Invalid(f"{name[:100]} {_message_and_path(inner)[0]}", pointer=f"/{_escaped(name)}")
    return Invalid(f"the body {_message_and_path(exc)[0]}")


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is larger than {limit} bytes")


def _malformed(data: bytes, exc: Exception) -> Malformed:
    if isinstance(exc, RecursionError):
        return _too_deep()
    if _SURROGATE.search(data):
        return Malformed(f"the body is not valid JSON, or one of its strings has an unpaired surrogate ({exc})")
    return Malformed(f"the body is not valid JSON: {exc}")


def _too_deep() -> Malformed:
    return Malformed(f"the body nests objects and lists more than {MAX_DEPTH} levels deep")


def _refuse_bad_text(data: bytes) -> None:
    """Refuse JSON that not every store can keep: bad UTF-8 in undecoded parts, deep nesting, NUL.

    Call it only on JSON that was parsed: finding strings in a body that ends within one takes quadratic time.
    """
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as exc:
            raise _malformed(data, exc) from exc
    if len(data) > 2 * MAX_DEPTH and _depth_exceeds(data, MAX_DEPTH):
        raise _too_deep()
    if BACKSLASH in data and b"\\u0000" in data and _NUL.search(data):
        raise Invalid("text cannot contain the character NUL (\\u0000)", faults=_nul_faults(data))


def _depth_exceeds(data: bytes, limit: int) -> bool:
    """Remove the innermost level up to `limit` times; each pass is one scan at memory speed."""
    if data.count(b"[") + data.count(b"{") <= limit:
        return False
    brackets = _STRING.sub(b"", data).translate(_BRACKETS, _NO_BRACKETS)
    for _ in range(limit):
        brackets = brackets.replace(b"[]", b"")
        if not brackets:
            return False
    return True


def _nul_faults(data: bytes) -> list[Fault]:
    pointer = _find_nul(msgspec.json.decode(data), "") if len(data) < 100_000 else None
    return [] if pointer is None else [Fault(pointer, "text cannot contain the character NUL (\\u0000)")]


def _find_nul(value: Any, pointer: str) -> str | None:
    if isinstance(value, str):
        return pointer if "\0" in value else None
    if isinstance(value, dict):
        entries = [(f"{pointer}/{_escaped(name)}", name, item) for name, item in value.items()]
        bad_names = (at for at, name, _ in entries if "\0" in name)
        return next(bad_names, None) or next(filter(None, (_find_nul(item, at) for at, _, item in entries)), None)
    if isinstance(value, list):
        return next(filter(None, (_find_nul(item, f"{pointer}/{index}") for index, item in enumerate(value))), None)
    return None


def _explain(data: bytes, kind: type[msgspec.Struct], exc: msgspec.ValidationError) -> Invalid:
    """Return the faults of a body, field by field; of a large one only the first, to save memory."""
    if len(data) > MAX_EXPLAINED:
        message, path = _message_and_path(exc)
        return Invalid(f"{_name_at(path) or 'the body'} {message}", pointer=path)
    return invalid_body(_faults(decode_object(data), kind, ""))


def invalid_body(faults: Iterable[Fault]) -> Invalid:
    """Return the error for the first faults of a body; finding all could cost far more than the request."""
    first = list(islice(faults, MAX_FAULTS))
    more = f" (and {len(first) - 1} more)" if len(first) > 1 else ""
    return Invalid(f"{first[0].detail}{more}", faults=first)


def _faults(value: dict[str, Any], kind: type[msgspec.Struct], pointer: str) -> Iterator[Fault]:
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    yield from (unknown_field(name, kind, pointer) for name in value if name not in fields)
    for name, field in fields.items():
        if name in value:
            yield from _field_faults(name, value[name], field.type, f"{pointer}/{name}")
        elif field.required:
            yield Fault(f"{pointer}/{name}", f"{_name_at(pointer + '/' + name)} is required")


def _field_faults(name: str, value: Any, kind: Any, pointer: str) -> Iterable[Fault]:
    if msgspec.Raw in (kind, *get_args(kind)):
        return []
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as exc:
        if isinstance(value, dict) and (nested := _struct_of(kind)) is not None:
            return _faults(value, nested, pointer)
        message, path = _message_and_path(exc)
        found = value_faults(_schema_of(kind), value, pointer) or [Fault(f"{pointer}{path}", message)]
        return [Fault(fault.pointer, f"{_name_at(fault.pointer)} {fault.detail}") for fault in found]
    return []


_schema_of = cache(msgspec.json.schema)


def _name_at(pointer: str) -> str:
    """Return the name of a field as people write it: `retry.factor`."""
    return pointer[1:].replace("/", ".").replace("~1", "/").replace("~0", "~")


def _struct_of(kind: Any) -> type[msgspec.Struct] | None:
    choices = [kind, *get_args(kind)]
    return next((one for one in choices if isinstance(one, type) and issubclass(one, msgspec.Struct)), None)


def _message_and_path(exc: Exception) -> tuple[str, str]:
    """Split an error of msgspec into its message and its path as a JSON pointer, as far as it has one."""
    text = str(exc)
    found = _PATH.search(text)
    if found is None:
        return plain_words(text), ""
    steps = _STEP.findall(found["path"])
    path = "".join(f"/{name or index}" for name, index in steps if name or index)
    return plain_words(text[: found.start()]), path


def _escaped(name: str) -> str:
    return name[:100].replace("~", "~0").replace("/", "~1")
