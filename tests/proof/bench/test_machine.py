"""CPU time and memory of processes are read correctly from /proc."""

import os
import subprocess
import sys
import time

import pytest

from horae.proof.bench.machine import PROC, cpu_seconds, cpu_times, family_cpu_seconds, parent_of, peak_rss_mb

pytestmark = pytest.mark.skipif(not PROC.is_dir(), reason="only Linux tells these figures")

BURN = "import time\nwhile time.process_time() < 0.3: pass"


def test_the_cpu_time_of_a_process_is_what_it_knows_itself() -> None:
    while time.process_time() < 0.1:
        pass
    assert cpu_seconds([os.getpid()]) == pytest.approx(time.process_time(), abs=0.05)


def test_children_that_have_ended_count_for_their_family() -> None:
    before = family_cpu_seconds(os.getpid())
    subprocess.run([sys.executable, "-c", BURN], check=True)
    assert family_cpu_seconds(os.getpid()) - before >= 0.28


def test_children_that_live_count_for_their_family() -> None:
    before = family_cpu_seconds(os.getpid())
    burning = [sys.executable, "-c", f"{BURN}\nprint(flush=True)\nimport sys\nsys.stdin.read()"]
    with subprocess.Popen(burning, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert family_cpu_seconds(os.getpid()) - before >= 0.28


def test_a_process_that_is_gone_has_nothing() -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    assert cpu_seconds([gone.pid]) == 0
    assert peak_rss_mb(gone.pid) is None
    assert parent_of(gone.pid, named="true") is None


def test_a_parent_is_found_by_its_name_alone() -> None:
    own_name = (PROC / str(os.getpid()) / "comm").read_text().strip()
    asleep = [sys.executable, "-c", f"import time; open('/proc/self/comm', 'w').write({own_name!r}); time.sleep(60)"]
    with subprocess.Popen(asleep) as child:
        deadline = time.monotonic() + 10
        while parent_of(child.pid, named=own_name) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert parent_of(child.pid, named=own_name) == os.getpid()
        assert parent_of(child.pid, named="postgres") is None
        child.kill()


def test_memory_and_stolen_time_are_told() -> None:
    memory, times = peak_rss_mb(os.getpid()), cpu_times()
    assert memory is not None
    assert memory > 10
    assert times is not None
    assert times[0] > times[1] >= 0
