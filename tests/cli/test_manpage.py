"""The manual page: made of the help, shipped, and readable by man."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "interlock.1"


def test_the_manual_page_is_what_the_help_says() -> None:
    # In a separate process, since click keeps state of the last call of a command.
    made = subprocess.run(
        [sys.executable, "-m", "tests.support.manpage"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert PAGE.read_text() == made.stdout, "run ./dev man"


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff reads manual pages")
def test_the_manual_page_has_no_error() -> None:
    shown = subprocess.run(
        ["groff", "-man", "-ww", "-Tutf8", "-P-cbou", str(PAGE)], capture_output=True, text=True, check=True
    )
    assert shown.stderr == ""
    assert "--at-least SEC" in shown.stdout
