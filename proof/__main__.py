"""`python -m proof NAME`: run the model checker by hand."""

import sys

from proof.command import main

if __name__ == "__main__":
    sys.exit(main())
