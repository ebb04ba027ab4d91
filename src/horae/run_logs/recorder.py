"""Logs of attempts: lines as they come, kept as chunks of text, capped, and never a reason to fail or delay a run."""

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

PREFIX = "logs/"  # of the keys of all log chunks
LIMIT = 1_000_000  # bytes per attempt
FLUSH_SECONDS = 1.0
END_SECONDS = 0.05  # after an attempt has ended; some delay, so that many that end together are one write
RETRY_SECONDS = 2.0
CLOSE_SECONDS = 5.0
MAX_PENDING = 32_000_000  # bytes of all attempts together that may wait for blobs that do not answer
_BATCH = 4_000_000  # bytes in one write
_FRAGMENT = 200  # bytes of a line that are worth keeping where the rest does not fit
_PAGE = 8  # chunks read at a time; each may be as large as LIMIT

_CONTROLS = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])?"  # ANSI
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)


class AttemptLog:
    """The log of one attempt; may be written to from any thread."""

    # Most attempts log nothing, so what only the others change stands here.
    _total = 0  # bytes taken so far
    _chunks = 0
    full = False
    closed = False
    redact: Callable[[str], str] | None = None  # strikes out what must not be kept

    def __init__(self, run_id: RunId, fence: int, keeper: "LogKeeper") -> None:
        self._run_id = run_id
        self._fence = fence
        self._keeper = keeper
        self._lines: list[bytes] = []

    def write(self, level: str, text: str) -> bool:
        """Add a message, or lines of output (level OUT); False when the log takes no more."""
        if self.full or self.closed:
            return False
        keeper = self._keeper
        plain = _plain(text[: keeper.limit + 1])
        if self.redact is not None:
            plain = self.redact(plain)
        lines = _formatted(keeper.clock.now(), level, plain)
        with keeper.lock:
            fresh = not self._lines
            lines = self._fitting(lines, min(keeper.limit - self._total, keeper.room))
            self._lines.append(lines)
            self._total += len(lines)
            keeper.added(self, len(lines), fresh=fresh)
        return not self.full

    def close(self) -> None:
        """The attempt has ended: what it wrote is kept soon, what it may still write is dropped."""
        self.closed = True
        if self._lines:
            self._keeper.arm(END_SECONDS)

    def take_chunk(self) -> tuple[str, bytes]:
        """What was written since the last chunk, with its key; the keeper calls this under its lock."""
        lines, self._lines = self._lines, []
        self._chunks += 1
        return f"{PREFIX}{self._run_id}/{self._fence:08d}/{self._chunks:06d}", b"".join(lines)

    def _fitting(self, lines: bytes, room: int) -> bytes:
        if len(lines) <= room:
            return lines
        self.full = True
        fitting = lines[: max(room, 0)]
        kept = fitting[: fitting.rfind(b"\n") + 1]
        if not kept and room > _FRAGMENT:
            kept = fitting.decode("utf-8", "ignore").encode() + b"\n"
        return kept + f"… log truncated at {self._total + len(kept)} bytes\n".encode()


class LogKeeper:
    """Brings the lines of all attempts to the blobs: one write a second, none when nobody logs."""

    def __init__(self, blobs: Blobs, clock: Clock, *, limit: int = LIMIT) -> None:
        self.clock = clock
        self.limit = limit
        self.lock = threading.Lock()
        self._blobs = blobs
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._dirty: dict[AttemptLog, None] = {}
        self._unsent: list[tuple[str, bytes]] = []  # cut into chunks, not accepted yet
        self._pending = 0  # bytes that no blob holds yet
        self._timer: asyncio.TimerHandle | None = None
        self._flush: asyncio.Task[None] | None = None
        self._failing = False

    @property
    def room(self) -> int:
        """How many more bytes may wait."""
        return MAX_PENDING - self._pending

    def open(self, run_id: RunId, fence: int) -> AttemptLog:
        """The log of a new attempt; it costs nothing until something is written."""
        return AttemptLog(run_id, fence, self)

    def added(self, attempt: AttemptLog, size: int, *, fresh: bool) -> None:
        """An attempt has written; called under the lock, on any thread."""
        self._pending += size
        if fresh:
            self._dirty[attempt] = None
            self.arm(FLUSH_SECONDS)

    def arm(self, seconds: float) -> None:
        """See to it that everything is written within so many seconds; callable on any thread."""
        if threading.get_ident() == self._thread:
            self._arm(seconds)
            return
        try:
            self._loop.call_soon_threadsafe(self._arm, seconds)
        except RuntimeError:  # the loop is closed; only an abandoned thread can still be writing
            log.debug("log_line_lost")

    async def close(self) -> None:
        """Write the rest; what cannot be written in time is given up with a warning."""
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

    def _arm(self, seconds: float) -> None:
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
            self._arm(RETRY_SECONDS if self._failing else END_SECONDS)

    async def _write_all(self) -> None:
        while self._unsent or self._dirty:
            if not self._unsent:
                self._cut_chunks()
            try:
                await self._blobs.put(self._unsent)
            except Exception as exc:  # noqa: BLE001 - whatever ails the blobs, runs go on and the lines wait
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
    """The log of a run, or of one of its attempts, in the order of writing; each piece ends with a line."""
    prefix = f"{PREFIX}{run_id}/" if fence is None else f"{PREFIX}{run_id}/{fence:08d}/"
    after = ""
    while chunks := await blobs.under(prefix, after=after, limit=_PAGE):
        for key, data in chunks:
            after = key
            yield data.decode("utf-8", "replace")


def _plain(text: str) -> str:
    """The text without what a terminal would act upon."""
    return _CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n")).rstrip("\n")


def _formatted(now: datetime, level: str, text: str) -> bytes:
    """Each line of output gets its own time; further lines of a message are indented, so that none can pose as one."""
    prefix = f"{now:%Y-%m-%dT%H:%M:%S}.{now.microsecond // 1000:03d}Z {level} "
    lines = text.replace("\n", f"\n{prefix}" if level == "OUT" else "\n  ")
    return f"{prefix}{lines}\n".encode("utf-8", "replace")
