"""The manifest of a day: which parts there are of it, and what each of them has."""

import re
from datetime import date, timedelta

import msgspec

from horae.core.errors import InternalError
from horae.core.model import RunId
from horae.core.values import Value

LAYOUT = 1
MANIFESTS = "manifests/"
_MANIFEST = re.compile(rf"{MANIFESTS}(\d{{4}}-\d\d-\d\d)\.json")


class Part(Value, frozen=True, kw_only=True):
    """A part: a file of compressed lines."""

    file: str
    runs: int
    first_id: RunId  # the ids of the others lie between these two
    last_id: RunId
    bytes: int
    sha256: str
    filter_bytes: int  # its share of the file of filters


class Manifest(Value, frozen=True, kw_only=True):
    """All that the archive has of a day. What it does not name is not part of the archive."""

    layout: int = LAYOUT  # of the archive
    day: date
    runs: int
    bytes: int
    filters: str  # the file with the filters of all parts, one after another
    parts: tuple[Part, ...]


def manifest_of(day: date, parts: tuple[Part, ...]) -> Manifest:
    """Return the manifest of a day that consists of these parts."""
    return Manifest(
        day=day,
        runs=sum(part.runs for part in parts),
        bytes=sum(part.bytes for part in parts),
        filters=f"filters/{day}.{len(parts):05d}.bloom",
        parts=parts,
    )


def encode_manifest(manifest: Manifest) -> bytes:
    """Return a manifest as JSON that people can read as well."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def decode_manifest(data: bytes) -> Manifest:
    """Read a manifest; raises InternalError for one of a later format."""
    found = msgspec.json.decode(data, type=Manifest)
    if found.layout != LAYOUT:
        raise InternalError(f"the manifest of {found.day} has the layout {found.layout}: it needs a later Horae")
    return found


def manifest_key(day: date) -> str:
    """Return the key of the manifest of a day."""
    return f"{MANIFESTS}{day.isoformat()}.json"


def day_of_manifest(key: str) -> date | None:
    """Return the day that the key of a manifest names; None for another file."""
    match = _MANIFEST.fullmatch(key)
    return None if match is None else date.fromisoformat(match[1])


def folder_of(day: date) -> str:
    """Return the folder of the parts of a day, named as tools expect that read partitions."""
    return f"runs/year={day:%Y}/month={day:%m}/day={day:%d}/"


def part_key(day: date, number: int) -> str:
    """Return the key of a part; numbers begin with 1."""
    return f"{folder_of(day)}part-{number:05d}.ndjson.gz"


def end_of(day: date) -> date:
    """Return the day after."""
    return day + timedelta(days=1)
