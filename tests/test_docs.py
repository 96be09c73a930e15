"""The documentation is correct: its examples run, its links lead somewhere."""

import doctest
import re
from pathlib import Path

import pytest

from tools import pages

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("bench/*.md"),
        *ROOT.glob("tests/*.md"),
        *ROOT.glob("examples/**/*.md"),
    ]
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_run(page: Path) -> None:
    results = doctest.testfile(str(page), module_relative=False)
    assert results.failed == 0


def test_the_tutorial_has_examples() -> None:
    assert doctest.testfile(str(ROOT / "docs/tutorial/first-lock.md"), module_relative=False).attempted > 10


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing


def test_every_test_that_the_page_of_faults_names_is_there() -> None:
    sources = [*ROOT.glob("tests/**/*.py"), *ROOT.glob("src/interlock/testing/contract/*.py")]
    names = {name for source in sources for name in re.findall(r"def (test_\w+)", source.read_text())}
    page = (ROOT / "tests/FAULTS.md").read_text()
    named = set(re.findall(r"::(test_\w+)", page))
    assert len(named) > 30
    assert named - names == set()
    files = {source.name for source in sources}
    assert set(re.findall(r"(test_\w+\.py)\b", page)) - files == set()


def test_files_of_ours_that_a_page_names_exist() -> None:
    folders = ("src", "tests", "model_checker", "bench", "examples", "docs", "tools")
    files = [f"/{each.relative_to(ROOT)}" for folder in folders for each in (ROOT / folder).rglob("*.*")]
    found = []
    for page in PAGES:
        if page.name == "CHANGELOG.md":  # it describes old versions
            continue
        named = re.findall(r"`((?!interlock\.)[\w./-]+\.(?:py|pyi|c|lua|sql))`", page.read_text())
        found += [
            f"{page.relative_to(ROOT)}: {name}" for name in named if not any(f.endswith(f"/{name}") for f in files)
        ]
    assert found == []


def test_pages_show_files_as_they_are() -> None:
    assert pages.main(check=True) == 0
