"""One owner beside another who fills what it can, at a small size; the acceptance suite has the full size."""

from pathlib import Path

import pytest

from tests.system.fixtures import STORES
from tests.system.neighbours import check_attack

PART = 100  # of the full size
LATEST = 0.5  # seconds, of 99 in 100 runs: the machine may be busy


@pytest.mark.parametrize(
    ("kind", "name"),
    [*((kind, name) for kind in STORES for name in ("due-queues", "unknown", "blocked")), ("sqlite", "streams")],
)
def test_what_one_owner_fills_does_not_delay_another(kind: str, name: str, tmp_path: Path) -> None:
    _, neighbour = check_attack(kind, tmp_path, name, part=PART, seconds=2)
    assert neighbour.p99 <= LATEST, neighbour
