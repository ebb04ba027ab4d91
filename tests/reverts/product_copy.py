"""Runs tests against a copy of the product in which a safety line is reverted."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.postgres_server import postgres_url
from tests.reverts.catalogue import Revert

ROOT = Path(__file__).parents[2]
TIMEOUT = 300.0  # seconds; usually a few
OPTIONS = ("-p", "no:cacheprovider", "-q", "-rfE", "--tb=no", "--no-header", "-m", "not acceptance")


def copy_product(folder: Path, revert: Revert | None = None) -> Path:
    """Copy the product's source into a folder, without one safety line."""
    source = Path(shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__")))
    if revert is not None:
        revert.change.apply(source)
    return source


def failing(source: Path, tests: Iterable[str]) -> tuple[set[str], str]:
    """Run tests on a copy of the product; return those that failed, and pytest's output."""
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
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout  # any other code means that no test ran
    return {line.split()[1] for line in done.stdout.splitlines() if line.startswith("FAILED ")}, done.stdout
