"""Runs tests against a copy of the product in which a safety line is reverted."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.postgres_server import postgres_url
from tests.reverts.lines import ROOT, Revert

WITHIN = 300.0  # seconds; usually a few
OPTIONS = ("-p", "no:cacheprovider", "-q", "-rfE", "--tb=no", "--no-header", "-m", "not acceptance")


def copy_product(folder: Path) -> Path:
    """The product's source once more, to be spoilt."""
    return Path(shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__")))


def revert(source: Path, what: Revert) -> None:
    """Take one care out of a copy."""
    file = source / Path(what.file).relative_to("src")
    file.write_text(what.applied(file.read_text("utf-8")), "utf-8")


def failing(source: Path, tests: Iterable[str]) -> tuple[set[str], str]:
    """Which of the tests of the ordinary run fail on a copy of the product; and all that was said."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {
        "PYTHONPATH": str(source),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HORAE_TEST_POSTGRES": postgres_url(),
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *OPTIONS, *sorted(set(tests))],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WITHIN,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout  # else nothing was tried
    return {line.split()[1] for line in done.stdout.splitlines() if line.startswith("FAILED ")}, done.stdout
