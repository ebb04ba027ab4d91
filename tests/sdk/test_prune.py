"""`horae jobs prune --app`: the store holds what the code declares."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.live import HORAE, environment

APP = """
from horae import Horae, cron, every
app = Horae(name="reports")

@app.task("report")
def report() -> None: ...

{schedules}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def deploy(folder: Path, *schedules: str) -> None:
    """Write the code of a version."""
    declared = "\n".join(f"app.schedule({schedule})(report)" for schedule in schedules)
    (folder / "tasks.py").write_text(APP.format(schedules=declared))


def prune(folder: Path, *flags: str, code: int = 0) -> str:
    command = [str(HORAE), "jobs", "prune", "--app", "tasks:app", *flags]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def outcomes(printed: str) -> dict[str, str]:
    return {item["key"]: item["outcome"] for item in json.loads(printed)["items"]}


def test_pruning_from_the_command_line(folder: Path) -> None:
    deploy(folder, 'cron("0 9 * * *"), key="daily"', 'every("1h"), key="hourly"')
    assert outcomes(prune(folder, "-o", "json")) == {"daily": "created", "hourly": "created"}
    deploy(folder, 'cron("0 10 * * *"), key="daily"')
    table = prune(folder, "--dry-run").splitlines()
    assert [line.split()[:2] for line in table[1:3]] == [["hourly", "cancelled"], ["daily", "changed"]]
    assert "nothing was changed" in table[-1]
    assert outcomes(prune(folder, "-o", "json")) == {"daily": "changed", "hourly": "cancelled"}
    deploy(folder, 'cron("0 10 * * *"), key="daily", params={"nope": 1}')
    assert outcomes(prune(folder, "-o", "json", code=1)) == {"daily": "refused"}
