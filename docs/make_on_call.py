"""Writes the screens of an evening on call into operations/on-call.md: `python docs/make_on_call.py`.

The evening itself, a shop on a real server and what its operator types, is in tests/cli/on_call.py.
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.cli.on_call import PAGE, filled, play, shop


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, shop(Path(folder)) as live:
        PAGE.write_text(filled(PAGE.read_text("utf-8"), play(live)), "utf-8")


if __name__ == "__main__":
    main()
