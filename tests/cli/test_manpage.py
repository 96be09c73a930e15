"""The manual page: made of the help, shipped, and readable by man."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.manpage import page

PAGE = Path(__file__).parents[2] / "docs" / "interlock.1"


def test_the_manual_page_is_what_the_help_says() -> None:
    assert PAGE.read_text() == page(), "run ./dev man"


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff reads manual pages")
def test_the_manual_page_has_no_error() -> None:
    shown = subprocess.run(
        ["groff", "-man", "-ww", "-Tutf8", "-P-cbou", str(PAGE)], capture_output=True, text=True, check=True
    )
    assert shown.stderr == ""
    assert "--at-least SEC" in shown.stdout
