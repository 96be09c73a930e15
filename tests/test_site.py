"""The site of the documentation: it builds, has every public name, and its search leaves out some pages."""

import json
import os
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MOST_ENTRIES = 35  # of the sidebar, before one is unfolded
INVENTORY_HEAD = 4  # lines


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
    assert [name for name in public if name not in shown] == []


def test_the_reference_shows_no_constructor_of_what_only_a_connection_makes(site: Path) -> None:
    for page, name in (("connections", "Locks"), ("locks", "Lock"), ("grants", "Grant")):
        text = (site / f"reference/api/{page}.html").read_text()
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
    assert [page for page in pages if page.startswith(("adr/", "explanation/mutants", "explanation/walks"))] == []
