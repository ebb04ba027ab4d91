"""The image of deploy/Dockerfile is built on a local base and started: a node, a worker, a job, health checks, the end.

Containers are those of buildah with the network of this machine, so everything listens on loopback.
"""

import json
import os
import platform
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import psutil
import pytest

from tests.acceptance.conftest import ReportFigure
from tests.docs.pages import ROOT
from tests.live import free_port
from tests.postgres_server import postgres_url, scratch_schema
from tests.runtime.test_supervisor import eventually

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, ("buildah", "mmdebstrap"))),
        reason="needs root, and the Debian packages buildah and mmdebstrap",
    ),
]

CERTIFICATES = "/etc/ssl/certs"
BASE_PACKAGES = "python3,python3-venv,ca-certificates"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A built image, and how buildah finds it."""

    storage: tuple[str, ...]
    name: str
    config: Mapping[str, Any]

    @contextmanager
    def container(self, *volumes: str) -> Iterator["Container"]:
        name = _buildah(self.storage, "from", self.name).strip()
        try:
            yield Container(image=self, name=name, volumes=volumes)
        finally:
            _buildah(self.storage, "rm", name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container that runs commands with the settings of its image."""

    image: Image
    name: str
    volumes: tuple[str, ...]

    def command(self, words: list[str], settings: Mapping[str, str]) -> list[str]:
        options = [f"--volume={volume}" for volume in self.volumes]
        options += [f"--env={name}={value}" for name, value in settings.items()]
        return ["buildah", *self.image.storage, "run", "--isolation=chroot", *options, self.name, "--", *words]

    def run(self, words: list[str], settings: Mapping[str, str]) -> str:
        done = subprocess.run(self.command(words, settings), capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def horae(self, *words: str, **settings: str) -> str:
        """Run the entry point of the image."""
        return self.run([*self.image.config["Entrypoint"], *words], settings)

    @contextmanager
    def node(self, log: Path, *words: str, **settings: str) -> Iterator[str]:
        """Start a node, wait until its health check succeeds, and stop it as `docker stop` does; its address."""
        port = str(free_port())
        settings |= {"HORAE_HOST": "127.0.0.1", "HORAE_PORT": port, "HORAE_PROBE_PORT": port}
        command = self.command([*self.image.config["Entrypoint"], *words], settings)
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            eventually(lambda: process.poll() is not None or '"ready"' in log.read_text(), "the node is ready")
            kind, *check = self.image.config["Healthcheck"]["Test"]
            assert kind == "CMD"
            self.run(check, settings)
            yield f"http://127.0.0.1:{port}"
            _inside(process).terminate()
            assert process.wait(60) == 0, log.read_text()
        finally:
            if process.poll() is None:
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
                process.kill()
            process.wait()


def _inside(process: "subprocess.Popen[bytes]") -> psutil.Process:
    """The process of the image, below those of buildah."""
    [horae] = [child for child in psutil.Process(process.pid).children(recursive=True) if child.name() == "horae"]
    return horae


def _buildah(storage: tuple[str, ...], *words: str | Path) -> str:
    done = subprocess.run(["buildah", *storage, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def image(tmp_path: Path) -> Iterator[Image]:
    folder = tmp_path / "image"
    folder.mkdir()
    try:
        yield _built(folder)
    finally:
        shutil.rmtree(folder)  # two gigabytes


def _built(folder: Path) -> Image:
    """Make a base of this machine's distribution, and build the image on it."""
    storage = (f"--root={folder}/storage", f"--runroot={folder}/run", "--storage-driver=vfs")
    base, suite = folder / "base.tar", platform.freedesktop_os_release()["VERSION_CODENAME"]
    subprocess.run(
        ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={BASE_PACKAGES}", suite, base], check=True
    )
    _buildah(storage, "from", "--name=base", "scratch")
    _buildah(storage, "add", "base", base, "/")
    _buildah(storage, "config", "--env=PATH=/usr/local/bin:/usr/bin:/bin", "base")
    _buildah(storage, "commit", "--rm", "base", "localhost/base")
    # The machine's own certificates, because its way to the package index may need them.
    trust = [f"--volume={CERTIFICATES}:{CERTIFICATES}:ro", f"--env=PIP_CERT={CERTIFICATES}/ca-certificates.crt"]
    options = [
        "--format=docker",
        "--isolation=chroot",
        "--build-arg=BASE=localhost/base",
        *trust,
        "--unsetenv=PIP_CERT",
    ]
    _buildah(storage, "build", *options, "--file", ROOT / "deploy/Dockerfile", "--tag=horae", ROOT)
    config = json.loads(_buildah(storage, "inspect", "--type=image", "horae"))["Docker"]["config"]
    return Image(storage=storage, name="horae", config=config)


async def test_the_image_runs_nodes_and_a_worker(image: Image, tmp_path: Path, report_figure: ReportFigure) -> None:
    report_figure({each["names"][0]: each["size"] for each in json.loads(_buildah(image.storage, "images", "--json"))})
    sockets = parse_qs(urlsplit(postgres_url()).query)["host"][0]
    example = f"{ROOT}/deploy/example:/app:ro"
    async with scratch_schema(postgres_url()) as store:
        with ExitStack() as stack:
            inside = stack.enter_context(image.container(f"{sockets}:{sockets}", example))
            assert inside.run(["id", "-u"], {}) == "10001"
            assert inside.run(["sh", "-c", "touch /opt/horae/x /app/x 2>/dev/null || echo refused"], {}) == "refused"
            inside.horae("db", "migrate", HORAE_STORE=store)
            tokens = {"HORAE_AUTH": "jwt", "HORAE_JWT_SECRET": secrets.token_hex(32)}
            log = tmp_path / "node.log"
            url = stack.enter_context(inside.node(log, "serve", "--roles", "api,planner", HORAE_STORE=store, **tokens))
            worker = stack.enter_context(
                inside.node(tmp_path / "worker.log", "worker", "--app", "tasks:app", HORAE_STORE=store)
            )
            token = inside.horae("token", "create", "--sub", "ann", HORAE_STORE=store, **tokens)
            _greet(url, token)
            assert "horae_due_soon" in httpx2.get(f"{worker}/metrics", trust_env=False).text


def _greet(url: str, token: str) -> None:
    """Run a task of the example to its end."""
    with httpx2.Client(base_url=url, trust_env=False, headers={"authorization": f"Bearer {token}"}) as client:
        job = client.post("/v1/jobs", json={"task": "tasks.greet", "params": {"name": "Ann"}})
        assert job.status_code == 201, job.text
        run = job.json()["id"].replace("job_", "run_")
        deadline = time.monotonic() + 30
        while (found := client.get(f"/v1/runs/{run}").json())["status"] != "succeeded":
            assert time.monotonic() < deadline, found
            time.sleep(0.1)
        assert found["result"] == "hello, Ann"
