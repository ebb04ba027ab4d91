"""Tab completion: scripts for each shell, and names that the server knows."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.commands import RunCommand, horae
from tests.live import HORAE, Live, environment, free_port

COMPLETE = """
source "$1"
COMP_WORDS=({words})
COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
cur="${{COMP_WORDS[COMP_CWORD]}}"
$(complete -p horae | sed 's/.*-F \\([^ ]*\\).*/\\1/') horae "$cur" "${{COMP_WORDS[COMP_CWORD-1]}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "horae.bash"
    path.write_text(horae("completion", "bash").stdout)
    return path


def completed(script: Path, *words: str, url: str) -> list[str]:
    """What bash offers for the last of these words."""
    code = COMPLETE.format(words=" ".join(f"'{word}'" for word in ("horae", *words)))
    done = subprocess.run(
        ["bash", "-c", code, "bash", script],
        env=environment() | {"HORAE_URL": url},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str) -> None:
    result = horae("completion", shell)
    assert result.returncode == 0
    assert "horae" in result.stdout
    assert "requeue" in result.stdout
    if (program := shutil.which(shell)) is not None:
        subprocess.run([program, "-n"], input=result.stdout, text=True, check=True, timeout=60)


def test_another_shell_is_refused() -> None:
    assert horae("completion", "tcsh").returncode == 2


def test_commands_options_and_choices_are_completed(script: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert {"jobs", "runs", "queues", "top"} <= {*completed(script, "", url=url)}
    assert completed(script, "dlq", "req", url=url) == ["requeue"]
    assert "--since" in completed(script, "runs", "ls", "--si", url=url)
    assert completed(script, "runs", "ls", "--status", "fai", url=url) == ["failed"]


def test_names_of_tasks_and_queues_come_from_the_server(script: Path, server: Live, command: RunCommand) -> None:
    command("queues", "set", "completed-queue", "--concurrency", "1")
    assert completed(script, "jobs", "create", "demo.e", url=server.url) == ["demo.echo"]
    assert completed(script, "queues", "pause", "comp", url=server.url) == ["completed-queue"]
    assert completed(script, "jobs", "ls", "--queue", "comp", url=server.url) == ["completed-queue"]
    assert completed(script, "jobs", "create", "demo.e", url=f"http://127.0.0.1:{free_port()}") == []


def test_completion_runs_nothing(server: Live) -> None:
    done = subprocess.run(
        [HORAE, "__complete", "queues", "pause", ""], env=server.environment, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
