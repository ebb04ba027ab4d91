"""`python -m tests.reverts`: reverts each safety line in a copy of the product, and tells which tests notice."""

import sys
import tempfile
from pathlib import Path

from tests.reverts.lines import REVERTS
from tests.reverts.trying import copy_product, failing, revert


def main() -> int:
    unnoticed = 0
    for each in REVERTS:
        with tempfile.TemporaryDirectory() as folder:
            source = copy_product(Path(folder))
            revert(source, each)
            failed, _ = failing(source, each.tests)
        missed = sorted(set(each.tests) - failed)
        unnoticed += bool(missed)
        told = f"UNNOTICED by {', '.join(missed)}" if missed else "noticed"
        print(f"{each.care}: {each.name} ({each.place}): {told}", flush=True)
    return min(unnoticed, 1)


if __name__ == "__main__":
    sys.exit(main())
