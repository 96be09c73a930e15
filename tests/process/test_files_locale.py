"""A program with a locale that has a decimal comma writes the same claims as other programs."""

import os
import subprocess
import sys
from pathlib import Path

import interlock
from tests.support.house import Process

COMMA = 'LC_NUMERIC\ndecimal_point ","\nthousands_sep ""\ngrouping -1\nEND LC_NUMERIC\n'
HOLDER = """
import locale, sys
import interlock
from tests.support.house import Process
locale.setlocale(locale.LC_ALL, "comma")
assert locale.format_string("%.1f", 1.5) == "1,5"
lock = interlock.connect(sys.argv[1]).lock("book")
with lock:
    pass  # makes the files; the next is the short way
lock.acquire()
print("holds", flush=True)
sys.stdin.read()
"""


def a_locale_with_a_comma(folder: Path) -> dict[str, str]:
    """Make the locale `comma`; return the environment in which it is found."""
    (folder / "source").write_text(COMMA)
    # It warns of all that is missing; the next process sees whether it was made.
    subprocess.run(
        ["localedef", "-c", "-i", str(folder / "source"), "--no-archive", str(folder / "comma")],
        capture_output=True, check=False,
    )  # fmt: skip
    return {**os.environ, "LOCPATH": str(folder)}


def test_a_holder_in_a_locale_with_a_comma_keeps_its_lock(tmp_path: Path, folder: Path) -> None:
    environment = a_locale_with_a_comma(tmp_path)
    command = [sys.executable, "-c", HOLDER, f"file://{folder}"]
    with Process(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.hear() == "holds"
        with interlock.connect(f"file://{folder}") as locks:
            assert [view.state for view in locks.claims()] == ["using"]
            assert locks.lock("book").acquire(blocking=False) is None
            holder.kill()
            with locks.lock("book", timeout=30):
                pass
