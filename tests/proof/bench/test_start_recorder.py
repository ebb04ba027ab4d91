"""Starts are recorded completely, counted quickly, and survive the end of their process."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from horae.proof.bench.start_recorder import StartRecorder, count_starts, read_starts

A_WINDOW = 65_536  # records that are mapped at a time

ENDLESS = """
import sys
from pathlib import Path
from horae.proof.bench.start_recorder import StartRecorder
recorder, number = StartRecorder(Path(sys.argv[1])), 0
while True:
    recorder.write(number)
    if number == 100_000:
        print("many", flush=True)
    number += 1
"""


def test_what_was_written_is_read_with_its_time(tmp_path: Path) -> None:
    before = time.time_ns()
    recorder = StartRecorder(tmp_path)
    for number in (0, 7, 3):
        recorder.write(number)
    numbers, times = zip(*read_starts(tmp_path), strict=True)
    assert numbers == (0, 7, 3)
    assert before <= times[0] <= times[1] <= times[2] <= time.time_ns()


def test_the_count_is_right_at_every_edge_of_a_window(tmp_path: Path) -> None:
    recorder = StartRecorder(tmp_path)
    assert count_starts(tmp_path) == 0
    for number in range(2 * A_WINDOW + 1):
        recorder.write(number)
        if number + 1 in (1, 2, A_WINDOW - 1, A_WINDOW, A_WINDOW + 1, 2 * A_WINDOW, 2 * A_WINDOW + 1):
            assert count_starts(tmp_path) == number + 1
    assert [number for number, _ in read_starts(tmp_path)] == list(range(2 * A_WINDOW + 1))


def test_nobody_has_recorded_anything_in_an_empty_folder(tmp_path: Path) -> None:
    assert count_starts(tmp_path) == 0
    assert list(read_starts(tmp_path)) == []


def test_a_killed_process_loses_no_record(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ENDLESS, tmp_path], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
    numbers = [number for number, _ in read_starts(tmp_path)]
    assert len(numbers) > 100_000
    assert numbers == list(range(len(numbers)))
    assert count_starts(tmp_path) == len(numbers)
