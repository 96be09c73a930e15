"""A third-party store, the one of docs/howto: found by its scheme, and tested by the contract."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

import interlock
from interlock.testing import contract

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "third-party-store.md"
CHAPTERS_TO_PLAY = (
    "wakes_the_waiter or test_namespaces or two_lock_objects or of_those_who_try or order_of_their or interrupted_by"
)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with the page's modules, installed as a package that has the page's entry point."""
    store, judge = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (entry,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "toy_store.py").write_text(store)
    (tmp_path / "test_toy.py").write_text(judge)
    about = tmp_path / "toy_store-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-store\nVersion: 1\n")
    points = entry.splitlines()[1:]
    assert entry.startswith('[project.entry-points."interlock.stores"]')
    (about / "entry_points.txt").write_text(
        "[interlock.stores]\n" + "\n".join(line.replace('"', "") for line in points)
    )
    return tmp_path


def run_pytest(folder: Path, *options: str) -> str:
    """Run pytest in `folder` in a new process; return its output."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *options],
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def test_a_store_is_found_by_its_scheme(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(package))
    with interlock.connect("toy://shelf") as locks, locks.lock("book") as grant:
        assert grant.fence > 0
        assert interlock.connect("toy://shelf").lock("book").acquire(timeout=0) is None
        assert interlock.connect("toy://other").lock("book").acquire(timeout=0) is not None

    async def story() -> bool:
        async with interlock.aconnect("toy://shelf") as locks, locks.lock("book") as grant:
            return grant.held

    assert asyncio.run(story())


def test_a_store_that_can_not_be_imported_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = tmp_path / "broken-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[interlock.stores]\nbroken = no_such_module:Store\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(interlock.StoreError, match="install"):
        interlock.connect("broken://x")


def test_the_whole_contract_is_collected_for_it(package: Path) -> None:
    said = run_pytest(package, "-q", "--collect-only")
    names = set(re.findall(r"^test_toy\.py::(\w+)", said, re.MULTILINE))
    assert names == {name for name in contract.__all__ if name.startswith("test_")}
    assert len(names) > 120


def test_it_is_judged_by_the_contract(package: Path) -> None:
    said = run_pytest(package, "-q", "-k", CHAPTERS_TO_PLAY)
    assert re.search(r"\d\d passed", said), said
    assert "failed" not in said
    assert "error" not in said


def test_a_store_that_lets_two_in_is_found_out(package: Path) -> None:
    source = (package / "toy_store.py").read_text()
    wrong = source.replace("decode(self._texts[key]) if key in self._texts else Line()", "Line()", 1)
    assert wrong != source
    (package / "toy_store.py").write_text(wrong)
    said = run_pytest(package, "-q", "-x", "-k", "rival_exclude or release_says")
    assert "failed" in said
