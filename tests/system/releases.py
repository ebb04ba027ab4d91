"""The code of the release before this one, and of one after it, as folders that processes import instead of ours."""

import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.live import environment
from tests.system.cluster import REPOSITORY

# The last commit of the release before this one, and the versions of its schema: raise them with each release.
PREVIOUS = "854eb8df5139efc38c8fefdec7dbe5f13b7a921a"
PREVIOUS_VERSIONS = {"postgres": 12, "sqlite": 6}


@dataclass(frozen=True, slots=True)
class Release:
    """Code of Horae that is not the one under test."""

    source: Path

    @property
    def settings(self) -> dict[str, str]:
        """What a process needs in its environment to run this code, with the packages of the tests."""
        return {"PYTHONPATH": os.pathsep.join([str(self.source), str(REPOSITORY)])}

    def expected_version(self, dialect: str) -> int:
        """The version of the schema that it is written for."""
        lines = (
            "import horae, sys; assert horae.__file__.startswith(sys.argv[1]), horae.__file__",
            "from horae.stores.common.schema import expected_version; print(expected_version(sys.argv[2]))",
        )
        command = [sys.executable, "-c", "; ".join(lines), str(self.source), dialect]
        done = subprocess.run(command, env=environment() | self.settings, capture_output=True, text=True, check=True)
        return int(done.stdout)


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of one run of the tests share."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


def previous_release(folder: Path) -> Release:
    """Take the code of the release before from the history of this clone; skips where the history is cut off.

    Tests that give the same folder share it, and what Python has compiled there.
    """
    release = Release(folder / f"release-{PREVIOUS[:12]}" / "src")
    if release.source.exists():
        return release
    done = _git("archive", "--format=zip", PREVIOUS, "src")
    if done.returncode != 0:
        if _git("rev-parse", "--is-shallow-repository").stdout.strip() == b"false":
            raise AssertionError(f"the history of this clone has no commit {PREVIOUS}: {done.stderr!r}")
        pytest.skip(f"no git clone with the history up to {PREVIOUS[:12]}: `git fetch --unshallow` gets it")
    with zipfile.ZipFile(io.BytesIO(done.stdout)) as archive, tempfile.TemporaryDirectory(dir=folder) as fresh:
        archive.extractall(fresh)
        release.source.parent.mkdir(exist_ok=True)
        with contextlib.suppress(OSError):  # another process was faster
            Path(fresh, "src").rename(release.source)
    assert release.source.exists()
    return release


def next_release(folder: Path, migrations: Mapping[str, str]) -> Release:
    """Copy this code, and add migrations to it: texts by `DIALECT/NNN_what_it_does.sql`."""
    source = folder / "next" / "src"
    shutil.copytree(REPOSITORY / "src", source, ignore=shutil.ignore_patterns("*.pyc.*"))  # those are half written
    for path, script in migrations.items():
        dialect, name = path.split("/")
        (source / "horae" / "stores" / dialect / "migrations" / name).write_text(script)
    return Release(source)


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no git here, which has the code of the release before")
