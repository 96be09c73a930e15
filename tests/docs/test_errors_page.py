"""The table of messages in the page of errors is that of the sources and tests."""

import subprocess
import sys

from tests.docs.pages import ROOT


def test_the_table_of_messages_is_up_to_date() -> None:
    words = [sys.executable, str(ROOT / "tools" / "errors.py"), "--check"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
