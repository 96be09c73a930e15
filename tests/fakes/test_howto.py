"""pytest runs the examples of the page about tests, with no other help than the plugin."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = dict(
    re.findall(r"```python\n# (\w+\.py)\n(.*?)```", (ROOT / "docs/howto/testing.md").read_text(), re.DOTALL)
)
SITE = """
import django
from django.conf import settings

settings.configure(INSTALLED_APPS=["interlock.django"], INTERLOCK={"default": {"LOCATION": "memory://"}})
django.setup()
"""


def pytest_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder outside of this repository."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:django",
        "-p",
        "no:anyio",
        "-p",
        "no:asyncio",
        *words,
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def plugin() -> str:
    """The module that pytest loads where interlock is installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module: str = project["entry-points"]["pytest11"]["interlock"]
    return module


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name.startswith("test_")])
def test_the_examples_of_the_page_pass(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(EXAMPLES[name])
    site = SITE if name == "test_stock.py" else ""
    (tmp_path / "conftest.py").write_text(EXAMPLES["conftest.py"] + site)
    loaded = [] if entry_points(group="pytest11", name="interlock") else ["-p", plugin()]
    ran = pytest_in(tmp_path, *loaded, "-W", "error::pytest.PytestWarning")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{EXAMPLES[name].count('def test_')} passed" in ran.stdout


def test_the_page_has_all_the_examples() -> None:
    assert list(EXAMPLES) == ["conftest.py", "test_report.py", "test_shop.py", "test_tasks.py", "test_stock.py"]


def test_the_plugin_is_light_and_brings_no_common_names(tmp_path: Path) -> None:
    """Every run of pytest loads the entry point by its name, so `-p no:interlock` can disable it."""
    installed = tmp_path / "interlock-0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: interlock\nVersion: 0\n")
    (installed / "entry_points.txt").write_text(f"[pytest11]\ninterlock = {plugin()}\n")
    (tmp_path / "test_it.py").write_text(
        "import sys\n"
        "HEAVY = {'click', 'rich', 'django', 'redis', 'sqlalchemy', 'interlock.testing.fakes'}\n"
        "def test_light(): assert HEAVY & set(sys.modules) == set()\n"
        "def test_ours(once_per_run): assert once_per_run('seven', lambda: 7) == 7\n"
        "def test_not_ours(locks): pass\n"
    )
    with_it = pytest_in(tmp_path)
    assert "fixture 'locks' not found" in with_it.stdout
    assert "2 passed, 1 error" in with_it.stdout
    without = pytest_in(tmp_path, "-p", "no:interlock")
    assert "fixture 'once_per_run' not found" in without.stdout
    assert "1 passed, 2 errors" in without.stdout


def test_a_fixture_of_the_program_takes_precedence(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(EXAMPLES["conftest.py"])
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "@pytest.fixture\n"
        "def alocks(): return 'mine'\n"
        "def test_mine(alocks): assert alocks == 'mine'\n"
        "def test_theirs(locks): assert locks.lock('a').acquire().release()\n"
    )
    assert "2 passed" in pytest_in(tmp_path).stdout
