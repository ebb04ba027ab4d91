"""Reads the ids and keys that requests name jobs and runs by."""

import re
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from horae.api.http.operation import Param
from horae.api.http.query import Query
from horae.core.errors import Invalid, NotFound
from horae.core.ids import is_id
from horae.core.limits import Key
from horae.core.model import JobId, RunId

ID_PREFIX = Param(
    "id_prefix",
    Annotated[str, Meta(pattern="^((job|run)_)?[0-9a-f]{1,32}$")],
    "the first digits of the id; only with `owner` and `limit`, and finds 20 at most",
)
_WITH_A_PREFIX = frozenset({ID_PREFIX.name, "owner", "limit"})


def read_id_prefix(query: Query, kind: Literal["job", "run"]) -> str | None:
    """Return the first digits of an id; None when they are not asked for. Raises Invalid beside other filters."""
    text = query.text(ID_PREFIX.name)
    if text is None:
        return None
    if others := sorted(query.names - _WITH_A_PREFIX):
        raise Invalid(f"id_prefix cannot be combined with {', '.join(others)}", pointer="/id_prefix")
    digits = text.removeprefix(f"{kind}_")
    if re.fullmatch("[0-9a-f]{1,32}", digits) is None:
        raise Invalid(
            f"id_prefix must be 1 to 32 of the digits 0-9 and a-f, after {kind}_ or alone", pointer="/id_prefix"
        )
    return digits


def read_job_id(text: str) -> JobId:
    """Return the id of a job; raises NotFound for a malformed one."""
    return JobId(_read_id(text, "job"))


def read_run_id(text: str) -> RunId:
    """Return the id of a run; raises NotFound for a malformed one."""
    return RunId(_read_id(text, "run"))


def read_job_ids(texts: Sequence[str]) -> list[JobId]:
    """Return the well-formed job ids among some texts."""
    bare = (text.removeprefix("job_") for text in texts if text.startswith("job_"))
    return [JobId(text) for text in bare if is_id(text)]


def read_run_ids(texts: Sequence[str]) -> list[RunId]:
    """Return the well-formed run ids among some texts."""
    bare = (text.removeprefix("run_") for text in texts if text.startswith("run_"))
    return [RunId(text) for text in bare if is_id(text)]


def read_key(text: str) -> str:
    """Return the key of a job that a path names; raises Invalid for one that no job can have."""
    try:
        key = msgspec.convert(text, Key)
    except msgspec.ValidationError as exc:
        raise Invalid("a key must have 1 to 200 characters") from exc
    if "\0" in key:
        raise Invalid("a key cannot contain the character NUL")
    return key


def _read_id(text: str, kind: str) -> str:
    bare = text.removeprefix(f"{kind}_")
    if bare == text or not is_id(bare):
        raise NotFound(kind, text[:100])
    return bare
