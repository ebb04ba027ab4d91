"""Logs of attempts: complete, capped, and never in the way."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from horae import run_logs
from horae.core.model import RunId
from horae.run_logs import LogWriter, read_log
from tests.clocks import ManualClock
from tests.execution.executing import NOW, MemoryBlobs, until

RUN = RunId("0" * 32)


@pytest.fixture
def blobs() -> MemoryBlobs:
    return MemoryBlobs()


@pytest.fixture
async def writer(blobs: MemoryBlobs, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LogWriter]:
    monkeypatch.setattr(run_logs, "RETRY_SECONDS", 0.05)
    writer = LogWriter(blobs, ManualClock(NOW), limit=10_000)
    yield writer
    blobs.failing = False
    await writer.close()


async def text_of(blobs: MemoryBlobs, fence: int | None = None) -> str:
    return "".join([part async for part in read_log(blobs, RUN, fence)])


async def test_a_line_has_time_level_and_message(blobs: MemoryBlobs, writer: LogWriter) -> None:
    attempt = writer.open(RUN, 1)
    attempt.write("INFO", "building day=7")
    attempt.close()
    await until(lambda: blobs.kept)
    assert blobs.kept == {f"logs/{RUN}/00000001/000001": b"2026-11-15T20:00:00.000Z INFO building day=7\n"}


async def test_what_an_ended_attempt_wrote_is_kept_within_100_ms(blobs: MemoryBlobs, writer: LogWriter) -> None:
    attempt = writer.open(RUN, 1)
    attempt.write("INFO", "done")
    attempt.close()
    began = asyncio.get_running_loop().time()
    await until(lambda: blobs.kept)
    assert asyncio.get_running_loop().time() - began < 0.1


async def test_many_attempts_are_one_write(blobs: MemoryBlobs, writer: LogWriter) -> None:
    for fence in range(100):
        attempt = writer.open(RUN, fence)
        attempt.write("INFO", "done")
        attempt.close()
    await until(lambda: len(blobs.kept) == 100)
    assert blobs.writes == 1


async def test_nothing_is_written_when_nobody_logs(blobs: MemoryBlobs, writer: LogWriter) -> None:
    writer.open(RUN, 1).close()
    await writer.close()
    assert blobs.writes == 0


async def test_a_long_attempt_is_flushed_every_second_in_order(blobs: MemoryBlobs, writer: LogWriter) -> None:
    attempt = writer.open(RUN, 1)
    attempt.write("INFO", "one")
    attempt.write("INFO", "two")
    await until(lambda: len(blobs.kept) == 1)
    attempt.write("INFO", "three")
    attempt.close()
    await until(lambda: len(blobs.kept) == 2)
    assert [line.split()[-1] for line in (await text_of(blobs)).splitlines()] == ["one", "two", "three"]


async def test_attempts_are_read_in_the_order_of_their_fences(blobs: MemoryBlobs, writer: LogWriter) -> None:
    for fence in (10, 9, 1):
        writer.open(RUN, fence).write("INFO", f"fence-{fence}")
    await writer.close()
    assert [line.split()[-1] for line in (await text_of(blobs)).splitlines()] == ["fence-1", "fence-9", "fence-10"]
    assert "fence-9" in await text_of(blobs, 9)
    assert "fence-1" not in await text_of(blobs, 9)


async def test_a_flood_is_cut_with_one_last_line(blobs: MemoryBlobs, writer: LogWriter) -> None:
    attempt = writer.open(RUN, 1)
    kept = [attempt.write("INFO", f"line {n}") for n in range(100_000)]
    await writer.close()
    text = await text_of(blobs)
    assert len(text) < 10_100
    assert text.splitlines()[-1].startswith("… log truncated at 9")
    assert text.count("truncated") == 1
    assert kept[0]
    assert not kept[-1]


async def test_one_endless_line_is_cut_too(blobs: MemoryBlobs, writer: LogWriter) -> None:
    writer.open(RUN, 1).write("INFO", "é" * 1_000_000)
    await writer.close()
    text = await text_of(blobs)
    assert 5_000 < len(text.encode()) < 10_100
    assert text.splitlines()[-1].startswith("… log truncated")


async def test_garbage_and_control_sequences_are_made_harmless(blobs: MemoryBlobs, writer: LogWriter) -> None:
    dirty = "\x1b[31mred\x1b[0m \x1b]0;title\x07bell\x07 nul\x00 \x1bPq\x1b\\dcs \x9b1m c1 tab\t lone \udcff"
    writer.open(RUN, 1).write("INFO", dirty)
    await writer.close()
    assert (await text_of(blobs)).partition("INFO ")[2] == "red bell nul dcs 1m c1 tab\t lone ?\n"


async def test_no_line_of_a_message_can_pose_as_another(blobs: MemoryBlobs, writer: LogWriter) -> None:
    attempt = writer.open(RUN, 1)
    attempt.write("INFO", "first\n2026-11-15T20:00:00.000Z ERROR forged")
    attempt.write("OUT", "a\nb\r\nc\n")
    await writer.close()
    stamp = "2026-11-15T20:00:00.000Z"
    assert (await text_of(blobs)).splitlines() == [
        f"{stamp} INFO first",
        f"  {stamp} ERROR forged",
        f"{stamp} OUT a",
        f"{stamp} OUT b",
        f"{stamp} OUT c",
    ]


async def test_blobs_that_fail_are_tried_again_and_lose_nothing(blobs: MemoryBlobs, writer: LogWriter) -> None:
    blobs.failing = True
    attempt = writer.open(RUN, 1)
    attempt.write("INFO", "one")
    attempt.close()
    await until(lambda: blobs.writes >= 2)
    writer.open(RUN, 2).write("INFO", "two")
    blobs.failing = False
    await until(lambda: len(blobs.kept) == 2)
    assert [line.split()[-1] for line in (await text_of(blobs)).splitlines()] == ["one", "two"]


async def test_memory_is_bounded_while_blobs_fail(
    blobs: MemoryBlobs, writer: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_logs, "MAX_PENDING", 50_000)
    blobs.failing = True
    for fence in range(100):
        attempt = writer.open(RUN, fence)
        attempt.write("INFO", "x" * 5_000)
        attempt.close()
    assert writer.room > -20_000  # each attempt may still say that it was cut


async def test_threads_write_without_losing_lines(blobs: MemoryBlobs, writer: LogWriter) -> None:
    attempts = [writer.open(RUN, fence) for fence in range(8)]

    def write(fence: int) -> None:
        for n in range(100):
            attempts[fence].write("INFO", f"{n}")

    threads = [threading.Thread(target=write, args=(fence,)) for fence in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    await writer.close()
    for fence in range(8):
        assert [int(line.split()[-1]) for line in (await text_of(blobs, fence)).splitlines()] == list(range(100))


async def test_control_sequences_cannot_slow_the_cleaning_down() -> None:
    began = asyncio.get_running_loop().time()
    for evil in ("\x1b]" * 250_000, "\x1b[" * 250_000, "\x1bP" * 250_000, "\x1b[" + "0" * 500_000):
        run_logs._formatted(NOW, "OUT", evil)
    assert asyncio.get_running_loop().time() - began < 2
