"""The page of `interlock serve` in a browser: its contents, and the eviction of a claim by a click."""

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

import interlock
from interlock.testing.waiting import RENEWED, eventually
from tests.servers import need
from tests.support.browser import PICTURES, WAIT_LIMIT, one_browser
from tests.support.cli_processes import CliRunner
from tests.support.serve_process import TOKEN, served

EVIL = "<img src=x onerror=document.title='had'>\u202e'\"&"


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Remote]:
    need("browser")
    with one_browser() as made:
        yield made


def until(browser: webdriver.Remote, condition: Callable[[], Any]) -> Any:
    """Wait until a condition on the page is true, and return its result."""
    return WebDriverWait(browser, WAIT_LIMIT, 0.05, (WebDriverException,)).until(lambda _: condition())


def seen(browser: webdriver.Remote, *columns: int) -> list[tuple[str, ...]]:
    """Return some columns of the rows of the page."""
    rows = browser.execute_script("return [...claims.rows].map(row => [...row.cells].map(cell => cell.innerText))")
    return [tuple(row[column] for column in columns) for row in rows]


def picture(browser: webdriver.Remote) -> None:
    """Save a screenshot for the documentation, if INTERLOCK_SCREENSHOTS is set."""
    if os.environ.get("INTERLOCK_SCREENSHOTS"):
        browser.set_window_size(1280, 420)
        browser.execute_script("store.textContent = 'Store file:///var/lib/shop/locks'")
        (PICTURES / "serve.png").write_bytes(browser.get_screenshot_as_png())


def test_the_page_shows_the_line_as_it_changes_and_evicts(run_cli: CliRunner, browser: webdriver.Remote) -> None:
    with served(run_cli.url, run_cli.folder) as page:
        browser.get(f"http://{page.host}/")
        assert until(browser, lambda: browser.find_element(By.ID, "empty").is_displayed())
        first = run_cli.hold("nightly", "--ttl", "3", "--label", "report")
        waiter = ("run", "--ttl", "6", "--label", "backup", "nightly", "--", "sleep", "60")
        run_cli.start_in_line(*waiter, name="nightly")
        run_cli.hold("book:7", "-s", "--label", "import")
        lines = [("book:7", "holder", "import"), ("nightly", "holder", "report"), ("nightly", "waiter", "backup")]
        until(browser, lambda: seen(browser, 0, 1, 5) == lines)
        assert browser.find_element(By.ID, "counts").text == "2 locks, 2 holders, 1 waiters"
        assert run_cli.url in browser.find_element(By.ID, "store").text
        picture(browser)

        button = browser.find_elements(By.CSS_SELECTOR, "#claims button")[1]
        button.click()
        assert "token" in browser.find_element(By.ID, "message").text
        field = browser.find_element(By.ID, "token")
        field.send_keys("not-the-token-at-all")
        button.click()
        browser.switch_to.alert.accept()
        until(browser, lambda: "Wrong token" in browser.find_element(By.ID, "message").text)
        field.clear()
        field.send_keys(TOKEN)
        button.click()
        alert = browser.switch_to.alert
        assert "nightly" in alert.text
        alert.dismiss()
        assert run_cli.count("using", "nightly") == 1
        button.click()
        browser.switch_to.alert.accept()
        until(browser, lambda: seen(browser, 1, 5)[1:] == [("holder", "backup")])
        assert first.ended()[0] == 70
        assert TOKEN not in browser.current_url

        page.process.kill()
        until(browser, lambda: "not connected" in browser.find_element(By.ID, "state").text)


def test_names_and_labels_of_others_are_text(run_cli: CliRunner, browser: webdriver.Remote) -> None:
    with served(run_cli.url, run_cli.folder, "--namespace", EVIL) as page:
        with interlock.connect(run_cli.url, namespace=EVIL) as locks:
            threading.current_thread().name, before = EVIL, threading.current_thread().name
            try:
                grant = locks.lock(EVIL, label=EVIL, ttl=2 * RENEWED).acquire()
            finally:
                threading.current_thread().name = before
            assert grant is not None
            browser.get(f"http://{page.host}/")
            shown = EVIL.replace("\u202e", "\\u{202e}")
            assert until(browser, lambda: seen(browser, 0, 5)) == [(shown, shown)]
            assert EVIL.partition("\u202e")[0] in browser.find_element(By.ID, "store").text
            assert not browser.find_elements(By.TAG_NAME, "img")
            assert browser.title == "interlock"
            browser.find_element(By.ID, "token").send_keys(TOKEN)
            browser.find_element(By.CSS_SELECTOR, "#claims button").click()
            browser.switch_to.alert.accept()  # the name goes there and back unchanged
            eventually(lambda: grant.lost)
            until(browser, lambda: not seen(browser, 0))


def test_a_record_of_once_is_shown_as_a_record(run_cli: CliRunner, browser: webdriver.Remote) -> None:
    run_cli.locks.once("import", keep=7200).run(lambda: None)
    with served(run_cli.url, run_cli.folder) as page:
        browser.get(f"http://{page.host}/")
        record = ("import", "record", "once", "", "", "", "", "kept for 1 h", "", "")
        until(browser, lambda: seen(browser, *range(10)) == [record])  # without a button
        assert browser.find_element(By.ID, "counts").text == "1 locks, 0 holders, 0 waiters, 1 records"
