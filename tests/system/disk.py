"""A small disk that can be filled up: a tmpfs of some megabytes."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class Disk:
    """Where it is, and what fills it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> int:
        """Leave not a byte; answers how many there were."""
        with self._ballast.open("ab", buffering=0) as file:
            while True:
                try:
                    os.write(file.fileno(), bytes(4096))
                except OSError:
                    return file.tell()

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)


@contextmanager
def small_disk(megabytes: int) -> Iterator[Disk]:
    """The disk while it is mounted, which only root may do; anybody may write to it."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    folder = Path(tempfile.mkdtemp(prefix="horae-disk-"))
    options = f"size={megabytes}m,mode=777"
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        folder.rmdir()
        pytest.skip(f"this machine mounts no tmpfs: {done.stderr.strip()}")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()
