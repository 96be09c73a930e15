"""The third-party store of docs/howto: its entry point, types and errors; its contract is a row of the table."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

import interlock
from interlock.testing import contract

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "third-party-store.md"


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
    with pytest.raises(interlock.StoreError, match="Install"):
        interlock.connect("broken://x")


def test_the_whole_contract_is_collected_for_it(package: Path) -> None:
    said = run_pytest(package, "-q", "--collect-only")
    names = set(re.findall(r"^test_toy\.py::(\w+)", said, re.MULTILINE))
    assert names == {name for name in contract.__all__ if name.startswith("test_")}
    assert len(names) > 120


def test_a_store_without_features_says_so_and_skips_their_tests(package: Path) -> None:
    change(package / "toy_store.py", "    features = ALL\n", "")
    said = run_pytest(package, "-q", "-rs", "-k", "first_wins or wakes_the_waiter or first_completed or slots")
    assert re.search(r"\d passed, \d+ skipped", said), said
    assert "failed" not in said
    program = """
import interlock
try:
    interlock.connect("toy://shelf").once("job", keep=60)
except interlock.Unsupported as error:
    assert error.feature == "once"
else:
    raise SystemExit("it was not refused")
"""
    subprocess.run([sys.executable, "-c", program], cwd=package, timeout=60, check=True)


def test_a_forked_child_owns_nothing_of_the_store_of_its_parent(package: Path) -> None:
    program = """
import os, interlock
held = interlock.connect("toy://shelf").lock("book").acquire()
child = os.fork()
if child == 0:
    own = interlock.connect("toy://shelf").lock("book").acquire(timeout=5)
    os._exit(0 if own is not None and held.lost else 1)
assert os.waitpid(child, 0)[1] == 0 and held.held
held.release()
"""
    subprocess.run([sys.executable, "-c", program], cwd=package, timeout=60, check=True)


def test_a_store_without_a_method_is_refused_when_it_is_made(package: Path) -> None:
    """By Python, which names the method; mypy does the same before the program runs."""
    change(package / "toy_store.py", "def doctor", "def doctr")
    done = subprocess.run(
        [sys.executable, "-c", "import toy_store; toy_store.Shelf()"], cwd=package, capture_output=True, text=True
    )
    assert re.search("TypeError: .*abstract.*doctor", done.stderr), done.stderr


def test_the_page_passes_the_strictest_type_check(package: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(package / "cache"), "toy_store.py"]
    done = subprocess.run(command, cwd=package, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout


def change(module: Path, old: str, new: str) -> None:
    """Replace a text that a module contains."""
    source = module.read_text()
    assert old in source
    module.write_text(source.replace(old, new, 1))


def test_a_store_that_lets_two_in_is_found_out(package: Path) -> None:
    change(package / "toy_store.py", "decode(self._texts[key]) if key in self._texts else Line()", "Line()")
    said = run_pytest(package, "-q", "-x", "-k", "rival_exclude or release_says")
    assert "failed" in said
