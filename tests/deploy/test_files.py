"""The Dockerfile, the compose file and the units of systemd: valid, and understood by Horae."""

import ast
import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from horae.api.auth.safety import refuse_unsafe
from horae.core.errors import Misconfigured
from tests.deploy.settings import DEPLOY, check_command, check_settings
from tests.docs.pages import ROOT
from tests.live import HORAE

DOCKERFILE = DEPLOY / "Dockerfile"
COMPOSE = DEPLOY / "compose.yaml"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
SECRETS = {"POSTGRES_PASSWORD": "hidden", "HORAE_JWT_SECRET": "x" * 40}


def run(command: str, *arguments: str | Path) -> None:
    """Run a tool of this environment; skip the test if it is not installed."""
    tool = shutil.which(command, path=f"{Path(sys.executable).parent}:/usr/bin:/bin")
    if tool is None:
        pytest.skip(f"{command} is not installed; .ci/run does it")
    done = subprocess.run([tool, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


# --- the image


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, each on one line."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", "")
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def test_the_dockerfile_has_nothing_to_complain_about() -> None:
    run("hadolint", DOCKERFILE)


def test_the_image_is_run_by_a_user_without_rights_and_says_how_it_is() -> None:
    last = dict(instructions())
    assert last["USER"] == "10001:10001", "a number, so that Kubernetes knows that it is not root"
    check_command(json.loads(last["CMD"]))
    program = json.loads(last["HEALTHCHECK"].partition("CMD ")[2])[-1]
    ast.parse(program)
    assert "/healthz" in program


def test_the_settings_of_the_image_can_be_read_and_need_authentication() -> None:
    [text] = [rest for name, rest in instructions() if name == "ENV"]
    settings = check_settings(dict(pair.split("=", 1) for pair in shlex.split(text)))
    assert settings.port == settings.probe_port == 8765
    with pytest.raises(Misconfigured, match="without authentication"):
        refuse_unsafe(settings, roles={"api"})


def test_the_build_gets_what_it_copies_and_no_more() -> None:
    admitted = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [word for name, rest in instructions() if name == "COPY" and "--from" not in rest for word in rest.split()]
    assert sorted(admitted) == sorted({word for word in copied if not word.startswith(".")})
    assert all((ROOT / name).exists() for name in admitted)


# --- compose


def services() -> Mapping[str, Mapping[str, Any]]:
    text = re.sub(r"\$\{(\w+):\?[^}]*\}", lambda found: SECRETS[found[1]], COMPOSE.read_text())
    found: Mapping[str, Mapping[str, Any]] = yaml.safe_load(text)["services"]
    return found


def test_the_compose_file_follows_its_schema() -> None:
    run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE)


@pytest.mark.parametrize("name", ["migrate", "node-1", "node-2", "worker"])
def test_a_service_of_the_compose_file_starts_horae(name: str) -> None:
    service = services()[name]
    check_command(service["command"])
    settings = check_settings(service["environment"] | {"HORAE_HOST": "0.0.0.0"})
    if name.startswith("node"):
        refuse_unsafe(settings, roles={"api", "planner"})
    grace = timedelta(seconds=int(service["stop_grace_period"].removesuffix("s")))
    assert grace > settings.drain_seconds + timedelta(seconds=10), "results are written after the drain"


def test_the_compose_file_has_postgresql_two_nodes_and_a_worker_of_the_example() -> None:
    found = services()
    assert found.keys() == {"postgres", "migrate", "node-1", "node-2", "worker"}
    assert found["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert all(
        found[name]["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}
        for name in ("node-1", "node-2", "worker")
    )
    assert found["worker"]["volumes"] == ["./example:/app:ro"]
    subprocess.run([sys.executable, "-c", "from tasks import app, greet"], cwd=DEPLOY / "example", check=True)


# --- systemd


def unit(path: Path) -> Mapping[str, str]:
    parser = configparser.RawConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment]
    parser.read_string(path.read_text())
    return parser["Service"]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_is_valid_and_confined(path: Path, tmp_path: Path) -> None:
    local = tmp_path / path.name.replace("@", "@one")
    local.write_text(path.read_text().replace(unit(path)["ExecStart"].split()[0], str(HORAE)))
    run("systemd-analyze", "verify", "--man=no", local)
    run("systemd-analyze", "security", "--offline=true", "--threshold=25", local)


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_starts_horae_and_gives_it_time_to_drain(path: Path) -> None:
    service = unit(path)
    words = shlex.split(service["ExecStart"])
    assert words[0].endswith("/bin/horae")
    given = dict(pair.split("=", 1) for pair in service.get("Environment", "").split())
    check_command([re.sub(r"\$\{(\w+)\}", lambda found: given[found[1]], word) for word in words[1:]])
    assert timedelta(seconds=int(service["TimeoutStopSec"])) > check_settings({}).drain_seconds + timedelta(seconds=10)
    assert service["KillMode"] == "mixed"
