"""The environment of a peer, built under .bench/ on first use and when its requirements change."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SCRATCH = ROOT / ".bench"


def drive(peer: str, mode: str, store: str, **options: int) -> dict[str, Any]:
    """Measure a peer; return its figures."""
    arguments = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    done = subprocess.run(
        [_python_of(peer), "-m", "benchmarks.peers.drive", peer, mode, *arguments],
        cwd=ROOT,
        env=os.environ | {"BENCH_STORE": store, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{peer} {mode} failed:\n{done.stderr}")
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def version_of(peer: str) -> str:
    """The pinned version of a peer."""
    pins = dict(line.split("==") for line in _requirements(peer).split())
    return pins[peer]


def _python_of(peer: str) -> Path:
    folder = SCRATCH / "peers" / peer
    python, built = folder / "bin" / "python", folder / "built-from.txt"
    wanted = _requirements(peer)
    if not built.exists() or built.read_text() != wanted:
        venv.create(folder, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "-q", "-r", f"{HERE}/{peer}.txt"]
        subprocess.run(pip, check=True, stdout=sys.stderr)
        built.write_text(wanted)
    return python


def _requirements(peer: str) -> str:
    return (HERE / f"{peer}.txt").read_text("utf-8")
