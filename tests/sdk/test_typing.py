"""The types of the SDK and the clients, as mypy sees them in users' code: wrong arguments are errors."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).parent / "typing_cases"
EXPECTED = re.compile(r"# (?P<kind>[ER]): (?P<words>.+)$")
TOLD = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): (?P<kind>error|note): (?P<words>.+)$")


@pytest.mark.parametrize("case", ["calls.py", "client.py"])
def test_a_type_checker_knows_what_may_be_said_and_what_comes_back(pytestconfig: pytest.Config, case: str) -> None:
    assert pytestconfig.cache is not None
    cache = pytestconfig.cache.mkdir("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary", "--hide-error-codes"]
    done = subprocess.run(
        [*command, f"--cache-dir={cache}", str(CASES / case)], capture_output=True, text=True, timeout=120
    )
    assert done.stderr == ""
    told = _told(done.stdout)
    expected = _expected(CASES / case)
    assert told.keys() == expected.keys(), done.stdout
    for line, (kind, words) in expected.items():
        heard = told[line]
        wanted = f'Revealed type is "{words}"' if kind == "R" else words
        assert any(_plain(one).startswith(_plain(wanted)) for one in heard), f"line {line}: {heard}, not {wanted}"


def _expected(file: Path) -> dict[int, tuple[str, str]]:
    found = {}
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if (match := EXPECTED.search(line)) and not line.startswith("Never run"):
            found[number] = (match["kind"], match["words"])
    return found


def _told(output: str) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for line in output.splitlines():
        match = TOLD.match(line)
        assert match is not None, line
        found.setdefault(int(match["line"]), []).append(match["words"])
    return found


def _plain(words: str) -> str:
    """Built-in types go by their short names."""
    return words.replace("builtins.", "")
