"""Bodies of requests: read within a limit, decoded strictly, and explained when they are wrong."""

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from itertools import islice
from typing import Any, TypeVar, get_args

import msgspec
from starlette.requests import Request

from horae.api.http.admission import stay_of
from horae.api.http.duplicate_keys import BACKSLASH, refuse_repeated_names
from horae.api.http.operation import header_values
from horae.core.errors import MAX_FAULTS, Fault, Invalid, Malformed, TooLarge

MAX_BODY = 11 * 1024 * 1024  # a job with the largest parameters and some room
MAX_BATCH_BODY = 64 * 1024 * 1024
MAX_DEPTH = 100  # of objects and lists within each other
MAX_EXPLAINED = 4 * 1024 * 1024  # bytes of a body that is taken apart to find everything that is wrong with it

Body = TypeVar("Body", bound=msgspec.Struct)

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_PLACE = re.compile(r" - at `\$(?P<path>.*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]|\[\.\.\.\]")


class EmptyBody(msgspec.Struct, forbid_unknown_fields=True):
    """An object without fields; an absent body means the same."""


_EMPTY = msgspec.json.Decoder(EmptyBody)


async def read_body(request: Request, limit: int = MAX_BODY) -> bytes:
    """The body; an absent one is an empty object.

    Raises TooLarge as soon as it is known to be, and what `Stay.bring` does when too much is under way already.
    """
    for declared in header_values(request, b"content-length"):
        if declared.isdecimal() and int(declared[:20]) > limit:
            raise _too_large(limit)
    stay = stay_of(request)
    chunks: list[bytes] = []
    size, more = 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise Malformed("the body ended before it was complete")
        chunk, more = message.get("body", b""), message.get("more_body", False)
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        if stay is not None:
            stay.bring(len(chunk))
        chunks.append(chunk)
    return b"".join(chunks) or b"{}"


def decode(data: bytes, decoder: msgspec.json.Decoder[Body], *, in_parts: bool = False) -> Body:
    """The body as a value of its kind; raises Malformed for what is no JSON, Invalid for what is wrong.

    With `in_parts` it is not looked at any further, because each of its undecoded parts will be.
    """
    try:
        value = decoder.decode(data)
    except msgspec.ValidationError as exc:
        raise _explanation(data, decoder.type, exc) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise _malformed(data, exc) from exc
    if not in_parts:
        _refuse_bad_text(data)
        refuse_repeated_names(data, _any(data))
    return value


async def read_empty_body(request: Request) -> None:
    """Read the body of an operation that takes no fields; raises Invalid when it has some."""
    decode(await read_body(request), _EMPTY)


def decode_any(data: bytes) -> Any:
    """Any JSON value."""
    try:
        value = _any(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise _malformed(data, exc) from exc
    _refuse_bad_text(data)
    refuse_repeated_names(data, value)
    return value


def decode_object(data: bytes) -> dict[str, Any]:
    """A JSON object."""
    value = decode_any(data)
    if not isinstance(value, dict):
        raise Invalid("the body must be a JSON object")
    return value


def unknown_field(name: str, kind: type[msgspec.Struct], pointer: str = "") -> Fault:
    """The complaint about a field that the kind does not have, with a hint."""
    known = [field.encode_name for field in msgspec.structs.fields(kind)]
    close = get_close_matches(name[:100], known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
    return Fault(f"{pointer}/{_escaped(name)}", f"unknown field {name[:100]!r}; {hint}")


def _any(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.ValidationError as exc:  # a number that no machine can hold
        raise _out_of_range(data, exc) from exc


def _out_of_range(data: bytes, exc: msgspec.ValidationError) -> Invalid:
    """Which field holds such a number: msgspec tells places in lists but not names, so each is tried by itself."""
    fields = _FIELDS.decode(data) if data.lstrip().startswith(b"{") else {}
    for name, raw in fields.items():
        try:
            msgspec.json.decode(raw)
        except msgspec.ValidationError as inner:
            return Invalid(f"{name[:100]}: {_message_and_path(inner)[0]}", pointer=f"/{_escaped(name)}")
    return Invalid(_message_and_path(exc)[0])


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is larger than {limit} bytes")


def _malformed(data: bytes, exc: Exception) -> Malformed:
    if isinstance(exc, RecursionError):
        return _too_deep()
    if _HALF_PAIR.search(data):
        return Malformed(f"the body is no JSON, or a string in it holds half of a surrogate pair ({exc})")
    return Malformed(f"the body is no JSON: {exc}")


def _too_deep() -> Malformed:
    return Malformed(f"the body nests objects and lists more than {MAX_DEPTH} deep")


def _refuse_bad_text(data: bytes) -> None:
    """Refuse what parses but cannot be kept everywhere: bad UTF-8 in undecoded parts, endless nesting, NUL.

    Only for what was parsed: to look for strings in what breaks off within one takes the square of its length.
    """
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as exc:
            raise _malformed(data, exc) from exc
    if len(data) > 2 * MAX_DEPTH and _depth_exceeds(data, MAX_DEPTH):
        raise _too_deep()
    if BACKSLASH in data and b"\\u0000" in data and _NUL.search(data):
        raise Invalid("text cannot hold the character NUL (\\u0000)", faults=_nul_faults(data))


def _depth_exceeds(data: bytes, limit: int) -> bool:
    """Peel off the innermost level again and again; each pass is one scan at the speed of memory."""
    if data.count(b"[") + data.count(b"{") <= limit:
        return False
    brackets = _STRING.sub(b"", data).translate(_BRACKETS, _NO_BRACKETS)
    for _ in range(limit):
        brackets = brackets.replace(b"[]", b"")
        if not brackets:
            return False
    return True


def _nul_faults(data: bytes) -> list[Fault]:
    place = _find_nul(msgspec.json.decode(data), "") if len(data) < 100_000 else None
    return [] if place is None else [Fault(place, "text cannot hold the character NUL (\\u0000)")]


def _find_nul(value: Any, pointer: str) -> str | None:
    if isinstance(value, str):
        return pointer if "\0" in value else None
    if isinstance(value, dict):
        entries = [(f"{pointer}/{_escaped(name)}", name, item) for name, item in value.items()]
        bad_names = (place for place, name, _ in entries if "\0" in name)
        return next(bad_names, None) or next(filter(None, (_find_nul(item, at) for at, _, item in entries)), None)
    if isinstance(value, list):
        return next(filter(None, (_find_nul(item, f"{pointer}/{place}") for place, item in enumerate(value))), None)
    return None


def _explanation(data: bytes, kind: type[msgspec.Struct], exc: msgspec.ValidationError) -> Invalid:
    """What is wrong with a body, field by field; of a large one the first thing, for its parts would fill memory."""
    if len(data) > MAX_EXPLAINED:
        message, path = _message_and_path(exc)
        return Invalid(message, pointer=path)
    return invalid_body(_faults(decode_object(data), kind, ""))


def invalid_body(faults: Iterable[Fault]) -> Invalid:
    """The first faults of a body: to look for all of them may cost far more than the request did."""
    told = list(islice(faults, MAX_FAULTS))
    more = f" (and {len(told) - 1} more)" if len(told) > 1 else ""
    return Invalid(f"{told[0].detail}{more}", faults=told)


def _faults(value: dict[str, Any], kind: type[msgspec.Struct], pointer: str) -> Iterator[Fault]:
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    yield from (unknown_field(name, kind, pointer) for name in value if name not in fields)
    for name, field in fields.items():
        if name in value:
            yield from _field_faults(name, value[name], field.type, f"{pointer}/{name}")
        elif field.required:
            yield Fault(f"{pointer}/{name}", f"{name} is required")


def _field_faults(name: str, value: Any, kind: Any, pointer: str) -> Iterable[Fault]:
    if msgspec.Raw in (kind, *get_args(kind)):
        return []
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as exc:
        if isinstance(value, dict) and (nested := _struct_of(kind)) is not None:
            return _faults(value, nested, pointer)
        message, path = _message_and_path(exc)
        return [Fault(f"{pointer}{path}", f"{name}: {message}")]
    return []


def _struct_of(kind: Any) -> type[msgspec.Struct] | None:
    choices = [kind, *get_args(kind)]
    return next((one for one in choices if isinstance(one, type) and issubclass(one, msgspec.Struct)), None)


def _message_and_path(exc: Exception) -> tuple[str, str]:
    """What msgspec says, and its path as a JSON pointer as far as it tells it."""
    text = str(exc)
    place = _PLACE.search(text)
    if place is None:
        return text.replace("`", ""), ""
    steps = _STEP.findall(place["path"])
    path = "".join(f"/{name or index}" for name, index in steps if name or index)
    return text[: place.start()].replace("`", ""), path


def _escaped(name: str) -> str:
    return name[:100].replace("~", "~0").replace("/", "~1")
