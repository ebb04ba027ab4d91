"""What `make` installs, and when: with a Python that only notes what it was asked to do."""

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

# Creates an environment like `python -m venv`, whose commands write down how they are called.
FAKE_PYTHON = """#!/bin/sh
case "$*" in *"-m venv .venv") ;; *) exit 0 ;; esac
echo venv >> calls
mkdir -p .venv/bin
for command in horae pytest ruff mypy lint-imports; do
  printf '#!/bin/sh\\n[ "$1" = --check ] || echo %s >> calls\\n' $command > .venv/bin/$command
done
cat > .venv/bin/python <<'END'
#!/bin/sh
case "$*" in
  *--version*) exit 0 ;;
  *install*) echo "${*#*install }" >> calls; echo "Collecting something"; exit "$(cat pip-exits-with)" ;;
esac
END
chmod +x .venv/bin/*
"""
BASE, TOOLS = "-e . -c constraints.txt", "-e .[all,dev] -c constraints.txt"


class Clone:
    """A folder with the Makefile in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in ("Makefile", "pyproject.toml", "constraints.txt"):
            shutil.copyfile(ROOT / name, folder / name)
            _age(folder / name, seconds=20)
        (folder / "python").write_text(FAKE_PYTHON)
        (folder / "python").chmod(0o755)
        self.pip_exits_with(0)

    def pip_exits_with(self, code: int) -> None:
        (self._folder / "pip-exits-with").write_text(str(code))

    def make(self, target: str, *, code: int = 0) -> list[str]:
        """Run `make TARGET` and return what it called."""
        calls = self._folder / "calls"
        calls.write_text("")
        environ = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
        done = subprocess.run(
            ["make", target, "PYTHON=./python"], cwd=self._folder, env=environ, capture_output=True, text=True
        )
        assert done.returncode == code, done.stdout + done.stderr
        return calls.read_text().splitlines()

    def change(self, name: str) -> None:
        """Make a file newer than what was installed, by more than the file system's clock can miss."""
        for stamp in self._folder.glob(".venv/.ready*"):
            _age(stamp, seconds=10)
        _age(self._folder / name, seconds=5)

    def remove(self, name: str) -> None:
        (self._folder / name).unlink()


def _age(path: Path, *, seconds: float) -> None:
    os.utime(path, times=(time.time() - seconds,) * 2)


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def test_make_dev_installs_only_what_horae_runs_on_and_that_once(clone: Clone) -> None:
    assert clone.make("dev") == ["venv", BASE, "horae"]
    assert clone.make("dev") == ["horae"]


def test_make_test_installs_everything_and_leaves_nothing_to_do_for_dev(clone: Clone) -> None:
    assert clone.make("test") == ["venv", TOOLS, "pytest"]
    assert clone.make("dev") == ["horae"]
    assert clone.make("test") == ["pytest"]


def test_make_test_after_dev_adds_the_tools(clone: Clone) -> None:
    clone.make("dev")
    assert clone.make("test") == [TOOLS, "pytest"]
    assert clone.make("dev") == ["horae"]


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_other_dependencies_are_installed_into_the_same_environment(clone: Clone, name: str) -> None:
    clone.make("test")
    clone.change(name)
    assert clone.make("dev") == [BASE, "horae"]
    assert clone.make("test") == [TOOLS, "pytest"]


@pytest.mark.parametrize("before", [(), ("dev",), ("test",)])
def test_an_installation_that_failed_starts_over_with_a_new_environment(clone: Clone, before: Sequence[str]) -> None:
    for target in before:
        clone.make(target)
    clone.change("pyproject.toml")
    clone.pip_exits_with(1)
    assert "horae" not in clone.make("dev", code=2)
    clone.pip_exits_with(0)
    assert clone.make("dev") == ["venv", BASE, "horae"]
    assert clone.make("test") == [TOOLS, "pytest"]


def test_an_environment_without_a_working_python_is_replaced(clone: Clone) -> None:
    clone.make("dev")
    clone.change("pyproject.toml")
    clone.remove(".venv/bin/python")
    assert clone.make("dev") == ["venv", BASE, "horae"]
