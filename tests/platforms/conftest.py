"""What the tests of platforms share; those in the folder `windows` are run by Windows' Python only."""

import faulthandler
import re
from collections.abc import Iterator

import pytest

from tests.servers import Missing, need
from tests.servers.windows import WindowsPython

collect_ignore = ["windows"]

SAID = "said"
"""The property of a test with a line for the end of the run."""


@pytest.fixture
def takes_long() -> None:
    """Let a test run for longer than pytest's `faulthandler_timeout`."""
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session")
def windows() -> WindowsPython:
    """Windows' Python under wine; where wine can't run the test is skipped, and the summary says so."""
    need("windows")
    try:
        return WindowsPython()
    except Missing as error:
        pytest.skip(f"NOT TESTED on windows: {error}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the tests have to say, a line each, also if they passed."""
    for line in sorted(_said(terminalreporter)):
        terminalreporter.write_line(line)


def _said(reporter: pytest.TerminalReporter) -> Iterator[str]:
    for outcome in ("passed", "failed"):
        for report in reporter.stats.get(outcome, ()):
            for name, value in getattr(report, "user_properties", ()):
                if name == SAID:
                    yield f"{value} ({outcome})"


def totals(output: str) -> str:
    """Return the last line of pytest's output, which counts the tests."""
    found = re.findall(r"^=* ?(\d+ .*?\bin [\d.]+s.*?) ?=*$", output, re.MULTILINE)
    return str(found[-1]) if found else "no result"


def failures(output: str) -> str:
    """Return what pytest's output says of failures, or its end."""
    begin = re.search(r"^=+ (FAILURES|ERRORS) =+$", output, re.MULTILINE)
    return output[begin.start() if begin else 0 :][-6000:]
