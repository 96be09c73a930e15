"""`python -m interlock`: the command `interlock`."""

import sys

from interlock.cli import main

if __name__ == "__main__":
    sys.exit(main())
