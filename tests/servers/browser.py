"""The programs of the browser, for tests of web pages."""

import shutil
from typing import NamedTuple

from tests.servers.home import Missing


class BrowserPrograms(NamedTuple):
    """The paths of the programs."""

    browser: str
    driver: str


def browser_programs() -> BrowserPrograms:
    """Find Chromium and its driver.

    Raises:
        Missing: they are not installed; the message says how to get them.
    """
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        raise Missing(
            "there is no Chromium with its driver here; get them by: apt-get install chromium chromium-driver"
        )
    return BrowserPrograms(browser, driver)
