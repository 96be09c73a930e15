"""For PyInstaller, whose entry point asks where our hook lies: stores are imported by their names."""

import os


def hook_dirs() -> list[str]:
    """Return the folder of `hook-interlock.py`, which says what a frozen program needs."""
    return [os.path.dirname(__file__)]
