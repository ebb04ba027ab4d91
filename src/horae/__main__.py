"""`python -m horae` is the command line."""

import sys

from horae.cli import main

if __name__ == "__main__":
    sys.exit(main())
