"""The programs of the browser, for tests of web pages."""

from typing import NamedTuple

from tests.servers.home import program


class BrowserPrograms(NamedTuple):
    """The paths of the programs."""

    browser: str
    driver: str


def browser_programs() -> BrowserPrograms:
    """Find Chromium and its driver.

    Raises:
        Missing: they are not installed; the message says how to get them.
    """
    how = "apt-get install chromium chromium-driver"
    return BrowserPrograms(str(program("chromium", how)), str(program("chromedriver", how)))
