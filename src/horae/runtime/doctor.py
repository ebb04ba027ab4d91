"""Checks a set-up: its store, its nodes, its queues and its server."""

import asyncio
import contextlib
import platform
import shutil
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

from horae import __version__
from horae.adapters import make_archive, make_blobs, make_queue, make_store, opened_store, sqlite_path
from horae.api.auth.safety import refuse_unsafe
from horae.archive.reader import Archive
from horae.client import Client
from horae.client.errors import Refused
from horae.config import ROLES, Settings
from horae.core.errors import HoraeError, Misconfigured, Unavailable
from horae.core.model import Node
from horae.ports.reader import QueueDepth
from horae.ports.store import Store

LEAST_SPACE = 1024**3  # free bytes below which there is a warning
CLOCK_TOLERANCE = timedelta(seconds=1)
LATE_AFTER = timedelta(seconds=10)
ARCHIVE_LATE_AFTER = timedelta(days=1)


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check, with what to do about it."""

    subject: str
    level: Level
    detail: str


async def examine(settings: Settings) -> AsyncIterator[Finding]:
    """Check everything that the settings name, without changing or creating anything."""
    yield _ok("versions", f"Horae {__version__}, Python {platform.python_version()}")
    yield _safety(settings)
    if settings.queue != "store":
        yield await _queue(settings)
    present = True
    async for finding in _examine_schema(settings):
        present = present and finding.level is not Level.BAD
        yield finding
    if present:
        async for finding in _examine_store(settings):
            yield finding


async def _queue(settings: Settings) -> Finding:
    """Check that the queue in front of the store answers."""
    queue = None
    try:
        queue = make_queue(settings.queue)
        assert queue is not None
        began = time.perf_counter()
        await queue.open()
        state = await queue.state()
        took = (time.perf_counter() - began) * 1000
    except HoraeError as exc:
        return _bad("queue", f"{exc}; until it answers, runs are claimed from the store")
    finally:
        if queue is not None:
            with contextlib.suppress(Unavailable):
                await queue.close()
    detail = f"answers in {took:.0f} ms and holds {state.tickets} tickets"
    if state.refused:
        return _warning("queue", f"{detail}; {state.refused} were taken too often and set aside")
    return _ok("queue", detail)


async def examine_server(settings: Settings) -> Finding:
    """Check the server at HORAE_URL, without changing or creating anything."""
    return await asyncio.to_thread(_server, await _known_nodes(settings))


def _server(known: frozenset[str] | None) -> Finding:
    """Check that the server at HORAE_URL answers, accepts HORAE_TOKEN, and has the store that the settings name.

    `known` are the nodes that are registered in that store; None if it cannot be read.
    """
    with Client(retries=0) as client:
        try:
            tasks = len(list(client.tasks.list()))
            nodes = {node.id for node in client.workers.list(role="any")}
        except Unavailable as exc:
            return _warning("server", str(exc))
        except Refused as exc:
            return _bad("server", f"{client.url} refuses the request: {exc}")
    if known is not None and nodes.isdisjoint(known):
        detail = f"{client.url} has another store: none of its nodes is registered in the one of these settings"
        return _bad("server", f"{detail}; set HORAE_URL or HORAE_STORE so that both are of one cluster")
    return _ok("server", f"{client.url} answers and knows {tasks} tasks")


async def _known_nodes(settings: Settings) -> frozenset[str] | None:
    """Return the nodes that are registered in the store; None if it cannot be read, which `examine` tells."""
    if settings.store.startswith("sqlite:") and not sqlite_path(settings.store).exists():
        return None
    try:
        if (await make_store(settings.store).status()).problem:
            return None
        async with opened_store(settings.store) as store:
            return frozenset(node.id for node in await store.nodes())
    except HoraeError:
        return None


def _safety(settings: Settings) -> Finding:
    try:
        refuse_unsafe(settings, roles=ROLES)
    except Misconfigured as exc:
        return _bad("safety", str(exc))
    return _ok("safety", "no authentication, loopback only" if settings.auth == "off" else "tokens are checked")


async def _examine_schema(settings: Settings) -> AsyncIterator[Finding]:
    """Check that the store exists and has a schema that this version can use."""
    if settings.store.startswith("sqlite:"):
        path = sqlite_path(settings.store)
        yield _space(path)
        if not path.exists():
            yield _bad("store", f"{path} does not exist yet; `horae dev` or `horae db migrate` creates it")
            return
    try:
        status = await make_store(settings.store).status()
    except HoraeError as exc:
        yield _bad("store", str(exc))
        return
    if status.problem is None:
        yield _ok("store", f"reachable, schema version {status.version}")
    else:
        yield _bad("store", status.problem)


def _space(path: Path) -> Finding:
    folder = next(place for place in path.absolute().parents if place.exists())
    free = shutil.disk_usage(folder).free
    space = f"{free / 1024**3:.1f} GiB free where the store is"
    return _ok("disk", space) if free >= LEAST_SPACE else _warning("disk", f"only {space}")


async def _examine_store(settings: Settings) -> AsyncIterator[Finding]:
    try:
        async with opened_store(settings.store) as store:
            yield await _clock(store)
            now = await store.time()
            nodes = [node for node in await store.nodes() if node.beat_at >= now - settings.dead_after_seconds]
            for role in ROLES:
                yield _role(role, [node for node in nodes if role in node.roles])
            for node in nodes:
                if abs(node.wall_ahead) > CLOCK_TOLERANCE:
                    yield _wrong_clock(node)
            for finding in _queues(await store.queues(now=now), now):
                yield finding
            yield _dead_letters(await store.count_dead_letters())
            if settings.blobs != "store":
                yield await _blobs(settings, store)
            if settings.archive:
                yield await _archive(settings, store, now)
    except Unavailable as exc:
        yield _bad("store", str(exc))


async def _clock(store: Store) -> Finding:
    """Compare the clock of this machine with that of the store, which jobs follow."""
    asked = time.time()
    store_time = await store.time()
    here = datetime.fromtimestamp((asked + time.time()) / 2, UTC)
    offset = here - store_time
    detail = f"this machine's clock is {_ahead(offset)}"
    if abs(offset) <= CLOCK_TOLERANCE:
        return _ok("clock", detail)
    return _warning("clock", f"{detail}; jobs follow the store's clock, but correct this one (NTP)")


def _wrong_clock(node: Node) -> Finding:
    detail = f"the clock of its machine is {_ahead(node.wall_ahead)}"
    return _warning(f"node {node.name}", f"{detail}; jobs follow the store's clock, but correct that one (NTP)")


def _ahead(offset: timedelta) -> str:
    side = "ahead of" if offset > timedelta() else "behind"
    return f"{abs(offset).total_seconds():.3f} s {side} the store's"


def _role(role: str, nodes: Sequence[Node]) -> Finding:
    if not nodes:
        found = _bad if role == "worker" else _warning  # without a worker nothing runs at all
        return found(f"{role} nodes", f"none alive; start one with `horae serve --roles {role}`")
    versions = sorted({node.version for node in nodes})
    mixed = "" if len(versions) == 1 else f", of versions {' and '.join(versions)}"
    return _ok(f"{role} nodes", f"{len(nodes)} alive{mixed}")


def _queues(queues: Sequence[QueueDepth], now: datetime) -> list[Finding]:
    findings = []
    for queue in queues:
        subject = f"queue {queue.queue}"
        age = timedelta() if queue.oldest_due_at is None else now - queue.oldest_due_at
        if queue.paused:
            findings.append(_warning(subject, f"is paused, with {queue.depth} runs due"))
        elif age > LATE_AFTER:
            detail = f"{queue.depth} runs are due, the oldest since {age.total_seconds():.0f} s"
            findings.append(_warning(subject, f"{detail}; `horae runs why RUN` explains why one does not start"))
    return findings or [_ok("queues", f"nothing is due for longer than {LATE_AFTER.total_seconds():.0f} s")]


async def _blobs(settings: Settings, store: Store) -> Finding:
    try:
        await make_blobs(settings.blobs, store).under("logs/", limit=1)
    except (Misconfigured, Unavailable) as exc:
        return _bad("blobs", str(exc))
    return _ok("blobs", "can be read")


async def _archive(settings: Settings, store: Store, now: datetime) -> Finding:
    """Check that the archive can be read, and that no history waits for it."""
    try:
        files = make_archive(settings.archive)
        assert files is not None, "the setting is not empty"
        days = await Archive(files).days()
    except (Misconfigured, Unavailable) as exc:
        return _bad("archive", f"{exc}; history is kept until it can be archived")
    waiting = await store.ended(before=(now - settings.retention - ARCHIVE_LATE_AFTER).date(), limit=1)
    if waiting is not None:
        detail = f"the history of {waiting.day} should have been archived, and is kept until it is"
        return _warning("archive", f"{detail}; planners do it, look for `archive_failed` in their logs")
    return _ok("archive", f"can be read, the last day is {days[-1]}" if days else "can be read, and is empty")


def _dead_letters(count: int) -> Finding:
    if count == 0:
        return _ok("dead letters", "none")
    return _warning("dead letters", f"{count} failed runs are not resolved; see `horae dlq ls`")


def _ok(subject: str, detail: str) -> Finding:
    return Finding(subject=subject, level=Level.OK, detail=detail)


def _warning(subject: str, detail: str) -> Finding:
    return Finding(subject=subject, level=Level.WARNING, detail=detail)


def _bad(subject: str, detail: str) -> Finding:
    return Finding(subject=subject, level=Level.BAD, detail=detail)
