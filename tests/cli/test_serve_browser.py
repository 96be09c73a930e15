"""The page of `interlock serve` in a browser: its contents, its looks, and the eviction of a claim by a click."""

import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

import interlock
from interlock.cli import output
from interlock.testing.waiting import RENEWED, eventually
from tests.servers import need
from tests.support.browser import PICTURES, VIEW, WAIT_LIMIT, one_browser, show_as
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


SEEN = """
const text = (element, part) => element.querySelector(part).innerText;
const who = (list) => [...list.querySelectorAll("li")].map((item) => text(item, ".label"));
return [...claims.rows].filter((row) => !row.hidden).map((row) => [
  text(row, "th span"), text(row, "th small"), who(row.cells[1]), who(row.cells[2]),
]);
"""


def seen(browser: webdriver.Remote) -> list[tuple[str, str, list[str], list[str]]]:
    """Return the name, the kind, the labels of the holders and those of the waiters of each row."""
    without_fence = re.compile(r"(, )?fence \d+$")
    rows = browser.execute_script(SEEN)
    return [(name, kind, [without_fence.sub("", label) for label in holders], waiters)
            for name, kind, holders, waiters in rows]  # fmt: skip


def text_of(browser: webdriver.Remote, id: str) -> str:
    return browser.find_element(By.ID, id).text


def pictures(browser: webdriver.Remote) -> None:
    """Save screenshots for the documentation, if INTERLOCK_SCREENSHOTS is set."""
    if not os.environ.get("INTERLOCK_SCREENSHOTS"):
        return
    browser.execute_script("""
        new MutationObserver(() => {
            if (!store.textContent.endsWith("shop/locks")) store.textContent = "Store file:///var/lib/shop/locks";
        }).observe(store, {childList: true});
        store.textContent = "";
    """)
    for name, width, height, scheme in (
        ("serve", 1280, 420, "light"),
        ("serve-dark", 1280, 420, "dark"),
        ("serve-phone", 390, 640, "light"),
    ):
        show_as(browser, width, scheme, height)
        (PICTURES / f"{name}.png").write_bytes(browser.get_screenshot_as_png())
    show_as(browser, VIEW[0], "light")


def test_the_page_shows_the_line_as_it_changes_and_evicts(run_cli: CliRunner, browser: webdriver.Remote) -> None:
    with served(run_cli.url, run_cli.folder) as page:
        browser.get(f"http://{page.host}/")
        assert until(browser, lambda: browser.find_element(By.ID, "empty").is_displayed())
        first = run_cli.hold("nightly", "--ttl", "3", "--label", "report")
        waiter = ("run", "--ttl", "6", "--label", "backup", "nightly", "--", "sleep", "60")
        run_cli.start_in_line(*waiter, name="nightly")
        run_cli.hold("book:7", "-s", "--label", "import")
        run_cli.hold("gpu", "--permits", "3", "--units", "2", "--label", "train")
        lines = [
            ("book:7", "reader", ["import"], []),
            ("gpu", "semaphore 2 of 3", ["train"], []),
            ("nightly", "exclusive", ["report"], ["backup"]),
        ]
        until(browser, lambda: seen(browser) == lines)
        assert text_of(browser, "counts") == "3 locks, 3 holders, 1 waiter"
        assert run_cli.url in text_of(browser, "store")
        pictures(browser)

        button = browser.find_element(By.CSS_SELECTOR, "#claims tr:last-child .holders button")
        (holder,) = (view for view in run_cli.locks.claims("nightly") if view.state == "using")
        assert button.get_attribute("aria-label") == f"Evict {holder.pid}@{holder.host} from nightly"
        button.click()
        assert "token" in text_of(browser, "message")
        field = browser.find_element(By.ID, "token")
        field.send_keys("not-the-token-at-all")
        button.click()
        browser.switch_to.alert.accept()
        until(browser, lambda: "Wrong token" in text_of(browser, "message"))
        field.clear()
        field.send_keys(TOKEN)
        button.send_keys(Keys.ENTER)
        alert = browser.switch_to.alert
        assert "nightly" in alert.text
        alert.dismiss()
        assert run_cli.count("using", "nightly") == 1
        button.click()
        browser.switch_to.alert.accept()
        until(browser, lambda: seen(browser)[2:] == [("nightly", "exclusive", ["backup"], [])])
        told = f": 127.0.0.1 evicted {holder.pid}@{holder.host} from nightly"
        until(browser, lambda: text_of(browser, "evictions").endswith(told))
        assert first.ended()[0] == 70
        assert TOKEN not in browser.current_url

        page.process.kill()
        until(browser, lambda: "not connected" in text_of(browser, "state"))


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
            thread = EVIL.replace("\u202e", r"\u202e")  # the library escapes it
            line = (shown, "exclusive", [f"{shown}, thread {thread}"], [])
            assert until(browser, lambda: seen(browser)) == [line]
            assert EVIL.partition("\u202e")[0] in text_of(browser, "store")
            assert not browser.find_elements(By.TAG_NAME, "img")
            assert browser.title == "interlock"
            browser.find_element(By.ID, "token").send_keys(TOKEN)
            browser.find_element(By.CSS_SELECTOR, "#claims button").click()
            browser.switch_to.alert.accept()  # the name goes there and back unchanged
            eventually(lambda: grant.lost)
            until(browser, lambda: not seen(browser))
            until(browser, lambda: shown in text_of(browser, "evictions"))
            assert not browser.find_elements(By.TAG_NAME, "img")


def test_a_record_of_once_stands_apart_and_is_no_claim(run_cli: CliRunner, browser: webdriver.Remote) -> None:
    run_cli.locks.once("import", keep=7200).run(lambda: None)
    with served(run_cli.url, run_cli.folder) as page:
        browser.get(f"http://{page.host}/")
        until(browser, lambda: text_of(browser, "records") == "import, kept for 1 h")
        assert seen(browser) == []
        assert text_of(browser, "counts") == "0 locks, 0 holders, 0 waiters"
        assert not browser.find_elements(By.CSS_SELECTOR, "main button")
        run_cli.hold("import", "--label", "again")
        until(browser, lambda: seen(browser) == [("import", "exclusive", ["again"], [])])
        assert text_of(browser, "records") == "import, kept for 1 h"


# Looks of a store that would take long to make


def claim(number: int, state: str, age: float, **more: Any) -> dict[str, Any]:
    """Return a claim in JSON, made `age` seconds before the look."""
    since = output.iso(NOW - age)
    facts = {"id": f"id-{number}", "kind": "exclusive", "units": 1, "capacity": 1, "fence": None, "host": "h",
             "pid": number, "thread": "MainThread", "label": f"job {number}", "expires_in": 20.0,
             "since": since, "waiting_since": since, "held_since": since if state == "using" else None}  # fmt: skip
    return {**facts, "state": state, **more}


def look(locks: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Return an answer of the server: the claims of each lock, the holders first."""
    lines = [{"name": name, "holders": [each for each in claims if each["state"] != "pending"],
              "waiters": [each for each in claims if each["state"] == "pending"]}
             for name, claims in locks.items()]  # fmt: skip
    return {"store": "s", "namespace": "", "token": True, "time": output.iso(NOW), "locks": lines, "hidden": 0,
            "evictions": []}  # fmt: skip


NOW = 1_800_000_000.0
ANSWER = "window.answer = arguments[0]; window.fetch = async () => ({json: async () => window.answer});"


@pytest.fixture
def shows(tmp_path: Path, browser: webdriver.Remote) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Let the page show an answer of the server."""
    with served((tmp_path / "locks").as_uri(), tmp_path) as page:
        browser.get(f"http://{page.host}/")
        until(browser, lambda: text_of(browser, "state") == "live")

        def show(answer: dict[str, Any]) -> None:
            browser.execute_script(ANSWER, answer)
            until(browser, lambda: len(seen(browser)) == len(answer["locks"]))

        yield show
        show_as(browser, VIEW[0], "light")


LINE = [claim(0, "using", 900), *(claim(number, "pending", age) for number, age in enumerate((700, 70, 7), 1))]


def test_who_waits_long_is_coloured(browser: webdriver.Remote, shows: Callable[[dict[str, Any]], None]) -> None:
    shows(look({"book": LINE}))
    times = browser.find_elements(By.CSS_SELECTOR, "#claims .time")
    assert [each.text for each in times] == ["held 15 min", "waits 11 min", "waits 1 min", "waits 7 s"]
    assert [each.get_attribute("class") for each in times] == ["time", "time stuck", "time slow", "time"]
    assert len({each.value_of_css_property("color") for each in times}) == 3


def test_the_bar_of_a_lease_shrinks_and_has_words(
    browser: webdriver.Remote, shows: Callable[[dict[str, Any]], None]
) -> None:
    shows(look({"book": [claim(0, "using", 1, expires_in=30.0)]}))
    shows(look({"book": [claim(0, "using", 1, expires_in=6.5)]}))
    lease = browser.find_element(By.CSS_SELECTOR, "#claims .lease")
    until(browser, lambda: lease.text == "lease ends in 6 s")
    assert browser.execute_script("const {value, max} = document.querySelector('meter'); return [value, max]") == [
        6.5,
        30,
    ]


def test_search_finds_names_labels_and_processes(
    browser: webdriver.Remote, shows: Callable[[dict[str, Any]], None]
) -> None:
    shows(look({"book": LINE, "Pen": [claim(9, "using", 1, label="Ink", instance="web-3")]}))
    assert browser.find_element(By.CSS_SELECTOR, "#claims tr:last-child .who").text == "9@h (web-3)"
    browser.find_element(By.TAG_NAME, "body").send_keys("/")
    field = browser.switch_to.active_element
    assert field.get_attribute("id") == "search"
    for words, names in (
        ("ink", ["Pen"]),
        ("pen job", []),
        ("job 3", ["book"]),
        ("9@h", ["Pen"]),
        ("WEB-3", ["Pen"]),
        ("", ["book", "Pen"]),
    ):
        field.clear()
        field.send_keys(words + " ")
        assert [row[0] for row in seen(browser)] == names
    field.send_keys("pen")
    assert text_of(browser, "counts") == "1 of 2 locks, 2 holders, 3 waiters"


def test_a_refresh_moves_nothing(browser: webdriver.Remote, shows: Callable[[dict[str, Any]], None]) -> None:
    shows(look({"book": LINE, "pen": [claim(9, "using", 1)]}))
    browser.execute_script("""
        window.moved = 0; window.looks = 0;
        new PerformanceObserver((list) => { for (const each of list.getEntries()) window.moved += each.value; })
            .observe({type: "layout-shift"});
        const fetched = window.fetch;
        window.fetch = () => {
            window.looks += 1;
            answer.time = new Date(Date.parse(answer.time) + 8000).toISOString();
            for (const {holders} of answer.locks) for (const each of holders) each.expires_in = 3 + 9 * (looks % 2);
            return fetched();
        };
        window.rowBefore = claims.rows[0];
    """)
    until(browser, lambda: browser.execute_script("return looks >= 4"))
    assert browser.execute_script("return [moved, rowBefore === claims.rows[0]]") == [0, True]


def test_a_thousand_claims_are_quick_and_a_long_line_is_cut(
    browser: webdriver.Remote, shows: Callable[[dict[str, Any]], None]
) -> None:
    many = {f"lock {number}": [claim(number, "using", 5)] for number in range(500)}
    answer = look({**many, "z": [claim(500, "using", 5), *(claim(n, "pending", 5) for n in range(501, 1000))]})
    shows(answer)
    waiters = "#claims tr:last-child .waiters"
    assert len(browser.find_elements(By.CSS_SELECTOR, f"{waiters} li")) == 5
    more = browser.find_element(By.CSS_SELECTOR, f"{waiters} button.more")
    assert (more.text, more.get_attribute("aria-expanded")) == ("and 494 more", "false")
    browser.execute_script("arguments[0].click()", more)
    until(browser, lambda: len(browser.find_elements(By.CSS_SELECTOR, f"{waiters} li")) == 499)
    assert (more.text, more.get_attribute("aria-expanded")) == ("show fewer", "true")
    # The bars and the times of a refresh are written, and nothing is added, removed or moved.
    changed = browser.execute_script("""
        const seen = new MutationObserver(() => {});
        seen.observe(document.querySelector("main"), {childList: true, subtree: true, attributes: true});
        show(answer);
        return seen.takeRecords().length;
    """)
    assert changed == 0


WORDS = "h1, #store, #state, #counts, label, thead th, #claims span, #claims small, .more, #records li"
CONTRAST = """
const parse = (color) => color.match(/[\\d.]+/g).map(Number);
const light = (color) => {
  const linear = (part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  const [r, g, b] = parse(color).map((part) => linear(part / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const page = light(getComputedStyle(document.body).backgroundColor);
return [...document.querySelectorAll(arguments[0])].filter((each) => each.innerText).map((each) => {
  const text = light(getComputedStyle(each).color);
  return (Math.max(text, page) + 0.05) / (Math.min(text, page) + 0.05);
});
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_words_have_enough_contrast(
    browser: webdriver.Remote, shows: Callable[[dict[str, Any]], None], scheme: str
) -> None:
    show_as(browser, VIEW[0], scheme)
    shows(look({"book": [*LINE, *(claim(number, "pending", 5) for number in range(10, 20))]}))
    found = browser.execute_script(CONTRAST, WORDS)
    assert len(found) > 20
    assert min(found) >= 4.5  # WCAG 2, level AA


@pytest.mark.parametrize("width", [390, 1280])
def test_it_is_a_table_for_screen_readers_and_fits_a_phone(
    browser: webdriver.Remote, shows: Callable[[dict[str, Any]], None], width: int
) -> None:
    show_as(browser, width, "light")
    shows(look({"x" * 200: LINE, "pen": [claim(9, "using", 1)]}))
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    nodes = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = Counter(node["role"]["value"] for node in nodes if not node["ignored"])
    parts = ("table", "row", "columnheader", "rowheader", "cell")
    assert [roles[part] for part in parts] == [1, 3, 3, 2, 4]
    names = {node["name"]["value"] for node in nodes if node.get("role", {}).get("value") == "button"}
    assert "Evict 0@h from " + "x" * 200 in names
