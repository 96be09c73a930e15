"""The library site, and users with one browser each."""

import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.proxy import Proxy, ProxyType
from selenium.webdriver.remote.client_config import ClientConfig
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.expected_conditions import staleness_of
from selenium.webdriver.support.ui import Select, WebDriverWait

from interlock.testing.waiting import eventually
from tests.servers import browser_programs
from tests.servers.home import Home, last_lines
from tests.support.library_site import LIBRARY, environment_of

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "images"
VIEW = (1280, 800)
"""The size of a page in the browser, in pixels."""

WAIT_LIMIT = 60.0
"""Seconds that a test waits for a page or a process; only a failing test waits so long."""

PEOPLE = """
from django.contrib.auth.models import User
for name in ("anna", "ben"):
    User.objects.create_superuser(name, password={password!r})
"""

ROWS = """
return [...document.querySelectorAll("#result_list tbody tr")].map(row => Object.fromEntries(
    [...row.cells].map(cell => [(cell.className.match(/field-(\\S+)/) || ["", "chosen"])[1], cell.innerText.trim()])
));
"""

MORE_ROOM = """
document.querySelector(".main.shifted #toggle-nav-sidebar")?.click();
document.documentElement.style.zoom = 0.9;
"""
"""Makes room for wide tables, as a user would: it closes the sidebar of the admin, and uses smaller type."""

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


class Library:
    """The site without loans, with the superusers anna and ben.

    All its processes, and those of the browsers, end with the process that made it.
    """

    def __init__(self) -> None:
        self._home = Home("library")
        self._started = 0
        self._password = secrets.token_urlsafe(9)
        folder = str(self._home.folder)
        folders = dict.fromkeys(FOLDERS, folder)
        self._environment = {
            **environment_of(self._home.folder / "data"),
            **folders,
            "LIBRARY_PROTECTION": "occupy",
            "LIBRARY_ADMIN_PASSWORD": self._password,
        }
        try:
            self.address = self._serve([LIBRARY / "run"], r"The library is at (http://127\.0\.0\.1:\d+)/")
            with self._running([*self._manage, "shell", "-c", PEOPLE.format(password=self._password)]) as process:
                assert process.wait(WAIT_LIMIT) == 0
        except BaseException:
            self.close()
            raise

    @property
    def _manage(self) -> list[str | Path]:
        return [sys.executable, LIBRARY / "manage.py"]

    def _spawn(self, command: list[str | Path]) -> tuple["subprocess.Popen[bytes]", str, Path]:
        """Start a process; return it, the name of its note, and the file of its output."""
        self._started += 1
        note = str(self._started)
        log = self._home.folder / f"{note}.log"
        process = self._home.spawn(note, command, ends=signal.SIGTERM, log=log, environment=self._environment)
        return process, note, log

    @contextmanager
    def _running(self, command: list[str | Path]) -> Iterator["subprocess.Popen[bytes]"]:
        """Run a process during the block."""
        process, note, log = self._spawn(command)
        try:
            yield process
        except BaseException as error:
            error.add_note(last_lines(log))
            raise
        finally:
            process.terminate()
            process.wait(WAIT_LIMIT)
            self._home.forget(note)

    def _serve(self, command: list[str | Path], ready: str) -> str:
        """Start a server; return the group of the pattern `ready` in its output."""
        process, _note, log = self._spawn(command)

        def said() -> re.Match[str] | None:
            assert process.poll() is None, last_lines(log)
            return re.search(ready, log.read_text(errors="replace"))

        found = eventually(said, WAIT_LIMIT)
        assert found is not None
        return found[1]

    def browsers(self) -> str:
        """Start the driver of browsers; return its address."""
        command: list[str | Path] = ["/bin/sh", "-c", TOGETHER, "together", browser_programs().driver, "--port=0"]
        port = self._serve(command, r"started successfully on port (\d+)")
        return f"http://127.0.0.1:{port}"

    def locking(self, name: str, label: str) -> AbstractContextManager["subprocess.Popen[bytes]"]:
        """Let a process acquire a lock, and hold it during the block.

        Args:
            name: the name of the lock.
            label: the label of its claim.
        """
        words = ["interlock", "run", "--ttl", "6", "--label", label, name, "--", "sleep", "infinity"]
        return self._running([*self._manage, *words])

    def person(self, driver: webdriver.Remote, name: str) -> "Person":
        """Return a user with a browser, logged in."""
        person = Person(driver, self.address)
        if person.log_out_others(name):
            person.put("username", name)
            person.put("password", self._password)
            person.send("[type=submit]")
        return person

    def close(self) -> None:
        """End all processes, and remove all files."""
        self._home.close()


class Person:
    """A user, who opens pages of the site, clicks and types.

    Args:
        driver: the user's browser.
        address: the address of the site.
    """

    def __init__(self, driver: webdriver.Remote, address: str) -> None:
        self._driver = driver
        self._address = address

    def log_out_others(self, name: str) -> bool:
        """Open the admin; return whether the user has to log in."""
        self.open("/admin/")
        if self._driver.find_elements(By.ID, "user-tools"):
            if self.one("#user-tools strong").text.lower() == name:
                return False
            self._driver.delete_all_cookies()
            self.open("/admin/")
        return True

    def open(self, path: str) -> None:
        """Go to a page of the site."""
        self._driver.get(self._address + path)

    def open_form(self, book: int) -> None:
        """Go to the change form of a book in the admin."""
        self.open(f"/admin/catalogue/book/{book}/change/")

    def open_claims(self, refresh: int | None = None, search: str = "") -> None:
        """Go to the list of claims.

        Args:
            refresh: seconds after which the page reloads; None for never.
            search: show only claims whose names contain this text.
        """
        query = {"q": search} if refresh is None else {"q": search, "refresh": refresh}
        self.open(f"/admin/interlock/claim/?{urlencode(query)}")

    def one(self, selector: str) -> WebElement:
        """Return the element of a CSS selector."""
        return self._driver.find_element(By.CSS_SELECTOR, selector)

    def put(self, field: str, value: str) -> None:
        """Fill a field in, or choose from a list, as a user does."""
        element = self.one(f"[name={field}]")
        if element.tag_name == "select":
            Select(element).select_by_value(value)
        else:
            element.clear()
            element.send_keys(value)

    def value(self, field: str) -> str:
        """Return the value of a field."""
        return str(self.one(f"[name={field}]").get_property("value"))

    def send(self, button: str = "[name=_save]") -> None:
        """Click a button, and wait for the next page."""
        page = self.one("html")
        self.one(button).click()
        self.until(lambda: staleness_of(page)(self._driver))

    def texts(self, selector: str) -> list[str]:
        """Return the texts of all elements of a CSS selector."""
        return [element.text for element in self._driver.find_elements(By.CSS_SELECTOR, selector)]

    def claims(self) -> list[dict[str, str]]:
        """Return the rows of the list of claims, by the names of the columns."""
        rows: list[dict[str, str]] = self._driver.execute_script(ROWS)
        return rows

    def until(self, condition: Callable[[], T]) -> T:
        """Wait until a condition on the page is true, and return its result; the page may change meanwhile."""
        # During a change of pages the driver raises different errors, which all mean "not yet".
        waiting: Any = WebDriverWait(self._driver, WAIT_LIMIT, 0.05, (WebDriverException,))
        answer: T = waiting.until(lambda _driver: condition())
        return answer

    def picture(self, name: str) -> None:
        """Save a screenshot for the documentation, if INTERLOCK_SCREENSHOTS is set."""
        if os.environ.get("INTERLOCK_SCREENSHOTS"):
            self._driver.execute_script(MORE_ROOM)
            PICTURES.mkdir(exist_ok=True)
            (PICTURES / f"library-{name}.png").write_bytes(self._driver.get_screenshot_as_png())


@contextmanager
def two_browsers(library: Library) -> Iterator[tuple[webdriver.Remote, webdriver.Remote]]:
    """Two independent browsers."""
    with ExitStack() as stack:
        address = library.browsers()
        first, second = (stack.enter_context(_browser(address)) for _ in range(2))
        yield first, second


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
