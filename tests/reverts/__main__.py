"""`python -m tests.reverts`: reverts each safety line in a copy of the product, and reports which tests notice."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.reverts.catalogue import REVERTS
from tests.reverts.product_copy import copy_product, failing


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.reverts", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="only the reverts whose name contains this text")
    parser.add_argument("--list", action="store_true", help="print the reverts and where they apply, and run nothing")
    options = parser.parse_args()
    unnoticed = 0
    for each in REVERTS:
        if options.only not in each.name:
            continue
        title = f"{each.protects}: {each.name} ({each.change.place})"
        if options.list:
            print(title)
            continue
        with tempfile.TemporaryDirectory() as folder:
            failed, _ = failing(copy_product(Path(folder), each), each.tests)
        missed = sorted(set(each.tests) - failed)
        unnoticed += bool(missed)
        result = f"UNNOTICED by {', '.join(missed)}" if missed else "noticed"
        print(f"{title}: {result}", flush=True)
    return min(unnoticed, 1)


if __name__ == "__main__":
    sys.exit(main())
