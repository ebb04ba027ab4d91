"""The doctor fails when no worker lives, and when the server it asks has another store than the settings name."""

from pathlib import Path
from typing import Any

from tests.cli.commands import RunCommand, answer_of
from tests.live import Live


def examined(alone: RunCommand, **environment: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and each finding by its subject."""
    result = alone("doctor", "-o", "json", **environment)
    return result.returncode, {each["check"]: each for each in answer_of(result)["findings"]}


def test_a_server_with_another_store_is_noticed(server: Live, alone: RunCommand, tmp_path: Path) -> None:
    own = f"sqlite:///{server.folder}/.horae/horae.db"
    code, findings = examined(alone, HORAE_URL=server.url, HORAE_STORE=own)
    assert (code, findings["server"]["level"]) == (0, "ok"), findings
    other = f"sqlite:///{tmp_path}/other.db"
    assert alone("db", "migrate", "--store", other).returncode == 0
    code, findings = examined(alone, HORAE_URL=server.url, HORAE_STORE=other)
    assert (code, findings["server"]["level"]) == (1, "bad")
    assert f"{server.url} has another store" in findings["server"]["detail"]
    assert "set HORAE_URL or HORAE_STORE" in findings["server"]["detail"]


def test_a_set_up_without_a_live_worker_fails(alone: RunCommand, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/lonely.db"
    assert alone("db", "migrate", "--store", store).returncode == 0
    code, findings = examined(alone, HORAE_URL="http://127.0.0.1:1", HORAE_STORE=store)
    assert code == 1
    assert findings["worker nodes"]["level"] == "bad"
    assert "start one with `horae serve --roles worker`" in findings["worker nodes"]["detail"]
    assert (findings["store"]["level"], findings["planner nodes"]["level"]) == ("ok", "warning")
