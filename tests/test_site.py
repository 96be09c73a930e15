"""The site of the documentation: it builds, has every public name, and its search finds the pages for users."""

import json
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.servers import need
from tests.support.browser import one_browser, show_as

ROOT = Path(__file__).parent.parent
MOST_ENTRIES = 35  # of the sidebar, before one is unfolded
INVENTORY_HEAD = 4  # lines
WIDTHS = (390, 1280)  # pixels: a phone, a desk
LEAST_CONTRAST = 4.5  # of text of normal size: WCAG 2.2, 1.4.3

LOOK = """
const [names, least, done] = arguments;
const tag = (each) => `<${each.tagName.toLowerCase()} class="${each.className}">`;

// What a reader could only see by moving the whole page sideways.
const scrolls = (each) => each.tagName !== "ARTICLE"
    && (["auto", "scroll"].includes(getComputedStyle(each).overflowX) || scrolls(each.parentElement));
const wide = () => {
    const found = [...document.querySelectorAll("article *")]
        .filter((each) => each.getBoundingClientRect().right > innerWidth + 1).filter((each) => !scrolls(each));
    if (document.documentElement.scrollWidth > innerWidth) found.unshift(document.documentElement);
    return found.map((each) => `${tag(each)} is too wide`);
};

// Texts whose colour is too near to what is behind them, by WCAG's ratio; both colours as they are mixed.
const parts = (color) => {
    const [r, g, b, alpha = 1] = color.match(/[\\d.]+/g).map(Number);
    return color.startsWith("color(") ? [255 * r, 255 * g, 255 * b, alpha] : [r, g, b, alpha];
};
const over = ([r, g, b, alpha], below) => [r, g, b].map((part, at) => alpha * part + (1 - alpha) * below[at]);
const light = (color) => color.map((part) => part / 255)
    .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
const faint = () => {
    const known = new Map([[null, [255, 255, 255]]]);
    const behind = (each) => {
        if (!known.has(each))
            known.set(each, over(parts(getComputedStyle(each).backgroundColor), behind(each.parentElement)));
        return known.get(each);
    };
    const found = [], texts = document.createTreeWalker(document.querySelector("article"), NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const each = texts.currentNode.parentElement;
        if (!texts.currentNode.data.trim() || !each.checkVisibility({visibilityProperty: true})) continue;
        const back = behind(each), front = over(parts(getComputedStyle(each).color), back);
        const [low, high] = [light(front), light(back)].sort((a, b) => a - b);
        const contrast = (high + 0.05) / (low + 0.05);
        if (contrast < least) found.push(`${tag(each)} has a contrast of ${contrast.toFixed(1)}`);
    }
    return found;
};

(async () => {
    const found = new Set();
    for (const name of names) {
        const text = await (await fetch(`/${name}.html`)).text();
        const page = new DOMParser().parseFromString(text, "text/html").querySelector(".page");
        document.querySelector(".page").replaceWith(page);
        for (const each of [...wide(), ...faint()]) found.add(`${name}: ${each}`);
    }
    return [...found];
})().then(done, (error) => done([`${error}`]));
"""
"""Puts one page after the other into the window, which is much quicker than to load each, and looks at it."""


# The first one builds the site: half a minute of a processor.
pytestmark = [pytest.mark.timeout(900), pytest.mark.rare]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, built from this tree."""
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-b",
        "html",
        str(ROOT / "docs"),
        str(folder),
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    built = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False, env=environment)
    assert (built.returncode, built.stderr) == (0, "")
    return folder


def test_the_reference_has_every_public_name(site: Path) -> None:
    inventory = (site / "objects.inv").read_bytes().split(b"\n", INVENTORY_HEAD)[INVENTORY_HEAD]
    shown = {line.split(" ")[0] for line in zlib.decompress(inventory).decode().splitlines()}
    public = [line.partition("(")[0] for line in (ROOT / "tests/public_names.txt").read_text().splitlines()]
    # A how-to documents what stores import; these pages are for programs that lock.
    assert [name for name in public if name not in shown and not name.startswith("interlock.store_api.")] == []


@pytest.mark.parametrize("name", ["Locks", "Lock", "Grant"])
def test_the_reference_hides_constructors_that_users_never_call(site: Path, name: str) -> None:
    text = (site / "reference/api.html").read_text()
    signature = text[text.index(f'id="interlock.{name}"') :].partition("</dt>")[0]
    assert "sig-param" not in signature


def test_the_sidebar_can_be_read_at_a_glance(site: Path) -> None:
    sidebar = (site / "index.html").read_text().partition("sidebar-tree")[2]
    assert 20 < len(re.findall('class="toctree-l1', sidebar)) <= MOST_ENTRIES


def test_pages_for_contributors_are_not_among_what_is_found(site: Path) -> None:
    text = (site / "searchindex.js").read_text()
    index = json.loads(text[text.index("{") : text.rindex("}") + 1])
    found = {at for places in index["terms"].values() for at in ([places] if isinstance(places, int) else places)}
    pages = {index["docnames"][at] for at in found}
    assert "reference/contract" in pages
    assert [page for page in pages if page.startswith("adr/")] == []


@pytest.fixture(scope="module")
def reader(site: Path) -> Iterator[tuple[webdriver.Remote, str]]:
    """A browser, and the address of the site."""
    need("browser")
    handler = partial(SimpleHTTPRequestHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, one_browser() as driver:
        Thread(target=server.serve_forever, daemon=True).start()
        yield driver, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_chinese_word_is_found(reader: tuple[webdriver.Remote, str]) -> None:
    driver, address = reader
    driver.get(f"{address}/search.html?q=续租")
    found = WebDriverWait(driver, 60).until(lambda each: each.find_elements(By.CSS_SELECTOR, "#search-results li a"))
    assert any("/zh/" in str(link.get_attribute("href")) for link in found)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_page_fits_phone_and_desktop_in_light_and_dark(
    reader: tuple[webdriver.Remote, str], width: int, scheme: str
) -> None:
    driver, address = reader
    docs = ROOT / "docs"
    pages = sorted(str(page.relative_to(docs).with_suffix("")) for page in docs.rglob("*.md"))
    assert len(pages) > 50
    driver.set_script_timeout(600)
    driver.get(address)
    show_as(driver, width, scheme)
    assert driver.execute_async_script(LOOK, pages, LEAST_CONTRAST) == []


@pytest.mark.parametrize("width", WIDTHS)
def test_the_code_of_the_landing_page_fits_without_scrolling(
    reader: tuple[webdriver.Remote, str], width: int
) -> None:
    driver, address = reader
    driver.get(address)
    show_as(driver, width, "light")
    wide = (
        "return [...document.querySelectorAll('article pre')].filter((each) => each.scrollWidth > each.clientWidth)"
    )
    assert driver.execute_script(f"{wide}.map((each) => each.innerText)") == []
