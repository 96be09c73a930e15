"""`python -m model_checker NAME`: run the model checker by hand."""

import sys

from model_checker.command import main

if __name__ == "__main__":
    sys.exit(main())
