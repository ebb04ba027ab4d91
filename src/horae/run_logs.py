"""Logs of attempts: collected as lines, written to the blobs as chunks of text, and read back.

A log is capped, and blobs that fail or do not answer never fail or delay a run.
"""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable
from datetime import datetime

import structlog

from horae.core.model import RunId
from horae.ports.blobs import Blobs
from horae.ports.clock import Clock

log = structlog.get_logger(__name__)

PREFIX = "logs/"  # of the keys of all chunks
LIMIT = 1_000_000  # bytes per attempt
FLUSH_SECONDS = 1.0
END_SECONDS = 0.05  # between the end of an attempt and the write, so that many that end together are one write
RETRY_SECONDS = 2.0
CLOSE_SECONDS = 5.0
MAX_PENDING = 32_000_000  # bytes of all attempts that may wait in memory while the blobs do not answer
_BATCH = 4_000_000  # bytes in one write
_FRAGMENT = 200  # bytes of a line that are worth keeping when the whole line does not fit
_PAGE = 8  # chunks read at a time; each may be as large as LIMIT

_CONTROLS = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])?"  # ANSI
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)

Redact = Callable[[str], str]


class AttemptLog:
    """The log of one attempt, which any thread may write to."""

    # Class attributes, because most attempts log nothing and need no values of their own.
    _total = 0  # bytes taken so far
    _chunks = 0
    full = False
    closed = False

    def __init__(self, run_id: RunId, fence: int, writer: "LogWriter", redact: Redact | None) -> None:
        self._run_id = run_id
        self._fence = fence
        self._writer = writer
        self._redact = redact
        self._lines: list[bytes] = []

    def write(self, level: str, text: str) -> bool:
        """Add a message, or lines of output (level OUT); return False when the log is full or closed."""
        if self.full or self.closed:
            return False
        writer = self._writer
        plain = _plain(text[: writer.limit + 1])
        if self._redact is not None:
            plain = self._redact(plain)
        lines = _formatted(writer.clock.now(), level, plain)
        with writer.lock:
            fresh = not self._lines
            lines = self._truncated(lines, min(writer.limit - self._total, writer.room))
            self._lines.append(lines)
            self._total += len(lines)
            writer.added(self, len(lines), fresh=fresh)
        return not self.full

    def close(self) -> None:
        """End the log: what was written is flushed soon, what a stray thread still writes is dropped."""
        self.closed = True
        if self._lines:
            self._writer.schedule_flush(END_SECONDS)

    def take_chunk(self) -> tuple[str, bytes]:
        """Return the key and the text of everything since the last chunk; the caller holds the lock."""
        lines, self._lines = self._lines, []
        self._chunks += 1
        return f"{PREFIX}{self._run_id}/{self._fence:08d}/{self._chunks:06d}", b"".join(lines)

    def _truncated(self, lines: bytes, room: int) -> bytes:
        """Return the lines that fit, with a last line that says so if some do not."""
        if len(lines) <= room:
            return lines
        self.full = True
        fitting = lines[: max(room, 0)]
        kept = fitting[: fitting.rfind(b"\n") + 1]
        if not kept and room > _FRAGMENT:
            kept = fitting.decode("utf-8", "ignore").encode() + b"\n"
        return kept + f"… log truncated at {self._total + len(kept)} bytes\n".encode()


class LogWriter:
    """Writes the lines of all attempts to the blobs, in at most one write a second."""

    def __init__(self, blobs: Blobs, clock: Clock, *, limit: int = LIMIT) -> None:
        self.clock = clock
        self.limit = limit
        self.lock = threading.Lock()
        self._blobs = blobs
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._dirty: dict[AttemptLog, None] = {}
        self._unsent: list[tuple[str, bytes]] = []  # chunks that the blobs have not accepted yet
        self._pending = 0  # bytes that are not written yet
        self._timer: asyncio.TimerHandle | None = None
        self._flush: asyncio.Task[None] | None = None
        self._failing = False

    @property
    def room(self) -> int:
        """How many more bytes may wait in memory."""
        return MAX_PENDING - self._pending

    def open(self, run_id: RunId, fence: int, redact: Redact | None = None) -> AttemptLog:
        """Return the log of a new attempt, which costs nothing until something is written.

        `redact` replaces secrets before anything is stored.
        """
        return AttemptLog(run_id, fence, self, redact)

    def added(self, attempt: AttemptLog, size: int, *, fresh: bool) -> None:
        """Count new lines of an attempt; callable on any thread, by a caller that holds the lock."""
        self._pending += size
        if fresh:
            self._dirty[attempt] = None
            self.schedule_flush(FLUSH_SECONDS)

    def schedule_flush(self, seconds: float) -> None:
        """Write everything within so many seconds; callable on any thread."""
        if threading.get_ident() == self._thread:
            self._set_timer(seconds)
            return
        try:
            self._loop.call_soon_threadsafe(self._set_timer, seconds)
        except RuntimeError:  # the event loop is closed, and only an abandoned thread still writes
            log.debug("log_line_lost")

    async def close(self) -> None:
        """Write the rest; what cannot be written within CLOSE_SECONDS is dropped with a warning."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                while self._dirty or self._unsent:
                    self._start_flush()
                    assert self._flush is not None
                    await asyncio.wait([self._flush])
                    await asyncio.sleep(RETRY_SECONDS / 10 if self._failing else 0)
        except TimeoutError:
            log.warning("logs_lost", bytes=self._pending)
        if self._timer is not None:
            self._timer.cancel()
        if self._flush is not None:
            self._flush.cancel()
            await asyncio.wait([self._flush])

    def _set_timer(self, seconds: float) -> None:
        at = self._loop.time() + seconds
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._start_flush)

    def _start_flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._flush is None:
            self._flush = self._loop.create_task(self._write_all())
            self._flush.add_done_callback(self._flushed)

    def _flushed(self, flush: asyncio.Task[None]) -> None:
        self._flush = None
        if self._dirty or self._unsent:
            self._set_timer(RETRY_SECONDS if self._failing else END_SECONDS)

    async def _write_all(self) -> None:
        while self._unsent or self._dirty:
            if not self._unsent:
                self._cut_chunks()
            try:
                await self._blobs.put(self._unsent)
            except Exception as exc:  # noqa: BLE001 - whatever is wrong with the blobs, runs continue and the lines wait
                if not self._failing:
                    log.warning("logs_not_written", error=f"{type(exc).__name__}: {exc}")
                self._failing = True
                return
            self._failing = False
            with self.lock:
                self._pending -= sum(len(data) for _, data in self._unsent)
            self._unsent = []

    def _cut_chunks(self) -> None:
        with self.lock:
            size = 0
            while self._dirty and size < _BATCH:
                attempt = next(iter(self._dirty))
                del self._dirty[attempt]
                self._unsent.append(attempt.take_chunk())
                size += len(self._unsent[-1][1])


async def read_log(blobs: Blobs, run_id: RunId, fence: int | None = None) -> AsyncIterator[str]:
    """Yield the log of a run, or of one of its attempts, in the order of writing; each piece ends with a whole line."""
    prefix = f"{PREFIX}{run_id}/" if fence is None else f"{PREFIX}{run_id}/{fence:08d}/"
    after = ""
    while chunks := await blobs.under(prefix, after=after, limit=_PAGE):
        for key, data in chunks:
            after = key
            yield data.decode("utf-8", "replace")


def _plain(text: str) -> str:
    """Return the text without control sequences that a terminal would act upon."""
    return _CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n")).rstrip("\n")


def _formatted(now: datetime, level: str, text: str) -> bytes:
    """Return log lines with their time.

    Every line of output gets the time; further lines of a message are indented, so that none can pose as another.
    """
    prefix = f"{now:%Y-%m-%dT%H:%M:%S}.{now.microsecond // 1000:03d}Z {level} "
    lines = text.replace("\n", f"\n{prefix}" if level == "OUT" else "\n  ")
    return f"{prefix}{lines}\n".encode("utf-8", "replace")
