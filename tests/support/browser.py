"""A browser that sees no other site, with its own home."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.common.proxy import Proxy, ProxyType
from selenium.webdriver.remote.client_config import ClientConfig

from interlock.testing.waiting import eventually
from tests.servers import browser_programs
from tests.servers.home import Home, last_lines

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "images"
VIEW = (1280, 800)
"""The size of a page in the browser, in pixels."""

WAIT_LIMIT = 60.0
"""Seconds that a test waits for a page or a process; only a failing test waits so long."""

TOGETHER = """
trap 'kill -s KILL 0' TERM
"$@" &
wait
"""
"""Runs a program that would leave processes behind at its end, and kills its whole process group."""

FOLDERS = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR")
"""The folders in which the browser writes files by default."""

FLAGS = (
    "--headless=new",
    "--no-sandbox",  # required for root; it opens only pages of the tests
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-sync",
    "--disable-features=PasswordLeakDetection,Translate,OptimizationHints,MediaRouter",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--hide-scrollbars",
    "--force-prefers-reduced-motion",
    "--lang=en-US",
)


@contextmanager
def one_browser() -> Iterator[webdriver.Remote]:
    """A browser with its own home, for pages of other sites."""
    with closing(Home("browser")) as home:
        log = home.folder / "driver.log"
        folders = dict.fromkeys(FOLDERS, str(home.folder))
        command: list[str | Path] = ["/bin/sh", "-c", TOGETHER, "together", browser_programs().driver, "--port=0"]
        process = home.spawn("driver", command, ends=signal.SIGTERM, log=log, environment={**os.environ, **folders})

        def ready() -> re.Match[str] | None:
            assert process.poll() is None, last_lines(log)
            return re.search(r"started successfully on port (\d+)", log.read_text(errors="replace"))

        found = eventually(ready, WAIT_LIMIT)
        assert found is not None
        with _browser(f"http://127.0.0.1:{found[1]}") as driver:
            yield driver


@contextmanager
def _browser(address: str) -> Iterator[webdriver.Remote]:
    options = webdriver.ChromeOptions()
    options.binary_location = browser_programs().browser
    for flag in FLAGS:
        options.add_argument(flag)
    direct = Proxy(raw={"proxyType": ProxyType.DIRECT})
    driver = webdriver.Remote(address, options=options, client_config=ClientConfig(address, proxy=direct))
    try:
        _fit(driver)
        yield driver
    finally:
        driver.quit()


def _fit(driver: webdriver.Remote) -> None:
    """Set the size of the window so that a page has the size `VIEW`."""
    driver.set_window_size(*VIEW)
    width, height = driver.execute_script("return [innerWidth, innerHeight]")
    driver.set_window_size(2 * VIEW[0] - width, 2 * VIEW[1] - height)


def show_as(driver: webdriver.Remote, width: int, scheme: str, height: int = VIEW[1]) -> None:
    """Show the page as on a screen of another width, to a user who prefers a colour scheme.

    Args:
        driver: the browser.
        width, height: pixels.
        scheme: "light" or "dark".
    """
    screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
