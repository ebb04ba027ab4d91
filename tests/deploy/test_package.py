"""The wheel and the sdist: complete, alike, and enough to run Horae in an empty environment."""

import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from importlib.metadata import distribution
from pathlib import Path

import httpx2
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.docs.pages import ROOT
from tests.live import environment, free_port
from tests.runtime.test_supervisor import eventually

READY = '"event": "ready"'  # in the log of a node

SOURCE = ROOT / "src" / "horae"


def build(source: Path, target: Path, *kinds: str) -> None:
    options = [option for kind in kinds for option in ("-t", kind)]
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", target, *options], cwd=source, check=True)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist of this source."""
    folder = tmp_path_factory.mktemp("dist")
    build(ROOT, folder, "wheel", "sdist")
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    [path] = built.glob("*.whl")
    return path


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    expected = {
        str(path.relative_to(SOURCE.parent))
        for path in SOURCE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert found == expected
    kinds = {Path(name).suffix for name in found}
    assert kinds >= {".py", ".sql", ".typed", ".css", ".js"}, "what is read at run time"


def test_the_sdist_builds_the_same_wheel(built: Path, wheel: Path, tmp_path: Path) -> None:
    [sdist] = built.glob("*.tar.gz")
    subprocess.run(["tar", "-xzf", sdist, "-C", tmp_path], check=True)
    [unpacked] = tmp_path.iterdir()
    assert not (unpacked / "tests").exists()
    build(unpacked, tmp_path / "again", "wheel")
    [again] = (tmp_path / "again").glob("*.whl")
    assert hashlib.sha256(again.read_bytes()).digest() == hashlib.sha256(wheel.read_bytes()).digest()


def test_the_wheel_runs_horae_dev_in_an_environment_with_nothing_but_what_it_asks_for(
    wheel: Path, tmp_path: Path
) -> None:
    commands = installed(wheel, tmp_path / "env")
    work = tmp_path / "work"
    work.mkdir()
    environ = {name: value for name, value in environment().items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    place = subprocess.run(
        [commands / "python", "-c", "import horae; print(horae.__file__)"],
        cwd=work,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(place.stdout.strip()).is_relative_to(tmp_path / "env")
    port, log = free_port(), tmp_path / "horae.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [commands / "horae", "dev", "--port", str(port)], cwd=work, env=environ, stdout=output, stderr=output
        )
    try:
        eventually(lambda: process.poll() is not None or READY in log.read_text(), "horae dev is ready")
        assert process.poll() is None, log.read_text()
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            assert client.get("/readyz").json() == {"status": "ready"}
            assert client.get("/docs").is_success
            assert client.post("/v1/jobs", json={"task": "demo.echo"}).status_code == 201
            eventually(
                lambda: bool(client.get("/v1/runs", params={"status": "succeeded"}).json()["items"]), "a run succeeds"
            )
    finally:
        process.terminate()
        assert process.wait(20) == 0, log.read_text()


def installed(wheel: Path, folder: Path) -> Path:
    """Install a wheel without an index; what it requires is linked from this environment, and nothing else is there."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "--no-index", "--no-deps", wheel], check=True)
    [site] = folder.glob("lib/python*/site-packages")
    for name in sorted(required(wheel)):
        for file in distribution(name).files or []:
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (site / top).exists():
                os.symlink(Path(str(distribution(name).locate_file(top))), site / top)
    return folder / "bin"


def required(wheel: Path) -> set[str]:
    """What a wheel requires without extras, at any depth."""
    with zipfile.ZipFile(wheel) as archive:
        [path] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        stated = Parser().parsestr(archive.read(path).decode()).get_all("Requires-Dist") or []
    found: set[str] = set()
    open_ = list(_needed(stated))
    while open_:
        requirement = open_.pop()
        name = canonicalize_name(requirement.name)
        if name not in found:
            found.add(name)
            open_ += _needed(distribution(name).requires or [], requirement.extras)
    return found


def _needed(stated: list[str], extras: set[str] | None = None) -> Iterator[Requirement]:
    wanted = [{"extra": extra} for extra in ("", *sorted(extras or ()))]
    for requirement in map(Requirement, stated):
        if requirement.marker is None or any(requirement.marker.evaluate(each) for each in wanted):
            yield requirement
