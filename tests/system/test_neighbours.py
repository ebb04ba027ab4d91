"""One owner beside another who fills what it can, at a small size; the acceptance suite has each at its full size."""

from pathlib import Path

from tests.system.neighbours import check_attacks

PART = 100  # of the full size
LATEST = 0.5  # seconds, of 99 in 100 runs: the machine may be busy


def test_what_one_owner_fills_does_not_delay_another(kind: str, tmp_path: Path) -> None:
    got, neighbour = check_attacks(kind, tmp_path, "blocked", "unknown", "due-queues", "streams", part=PART, seconds=3)
    assert neighbour.p99 <= LATEST, f"{got}: {neighbour}"
