"""`python -m attnpaths`."""

import sys

from attnpaths.cli import main

if __name__ == "__main__":
    sys.exit(main())
