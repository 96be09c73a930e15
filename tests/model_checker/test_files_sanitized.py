"""The compiled fast paths have no memory errors and no undefined behaviour.

They are built with AddressSanitizer and UndefinedBehaviorSanitizer in a copy of the package, and tests run on it.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = "src/interlock/stores/files/_fast_path.c"
LANDS = [
    f"tests/contract/test_line_equivalence.py::test_compiled_steps_of_files_answer_as_the_line[{seed}]"
    for seed in range(3)
]
CONTRACT = ["tests/contract/test_contract.py", "-k", "hands or queue or order or dies"]
FILES = '''

@pytest.fixture
def row() -> Row:
    """Files: pytest shall not make the tests of all stores first."""
    return next(row for row in ROWS if row.name == "file")
'''
COPIED = ("src", "tests")
FLAGS = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]

pytestmark = [
    pytest.mark.skipif(bool(os.environ.get("INTERLOCK_PURE")), reason="INTERLOCK_PURE leaves the compiled ways out"),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def runtime() -> str:
    """The path of the sanitizer's library, which must be loaded first."""
    compiler = shutil.which("cc")
    assert compiler is not None, "NOT TESTED: there is no C compiler"
    found = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    library = found.stdout.strip()
    assert os.path.isabs(library), "NOT TESTED: the C compiler has no AddressSanitizer (Debian: package libasan8)"
    return library


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the package and its tests, without compiled files."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for each in COPIED:
        shutil.copytree(ROOT / each, tmp_path / each, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    with (tmp_path / "tests/contract/conftest.py").open("a") as conftest:
        conftest.write(f"from tests.support.stores import ROWS, Row{FILES}")
    return tmp_path


def build(tree: Path, warnings: str = "-Wall") -> None:
    """Compile the copy; it gives no warnings."""
    source = tree / SOURCE
    include = f"-I{sysconfig.get_path('include')}"
    command = ["cc", *FLAGS, warnings, "-shared", "-fPIC", "-D_GNU_SOURCE", include]
    said = subprocess.run(
        [*command, "-o", str(source.with_name("_fast_path.abi3.so")), str(source)], capture_output=True, text=True
    )
    assert (said.returncode, said.stderr) == (0, "")


def run(tree: Path, runtime: str, *tests: str) -> subprocess.CompletedProcess[str]:
    """Run tests on the copy, in this process's way and in that of all processes that they start."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree / "src"),
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0",  # Python keeps much until the end
        "PYTHONMALLOC": "malloc",  # each object with its own bounds
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, start_new_session=True)


@pytest.mark.parametrize("slots", [64, 2])  # read at once: a line of the tests has several parts, or one
def test_the_compiled_ways_are_clean(tree: Path, runtime: str, slots: int) -> None:
    source = tree / SOURCE
    text = source.read_text()
    assert text.count("(64 * SLOT)") == 1
    source.write_text(text.replace("(64 * SLOT)", f"({slots} * SLOT)"))
    build(tree)
    done = run(tree, runtime, *LANDS)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


def test_processes_that_lock_by_them_are_clean(tree: Path, runtime: str) -> None:
    build(tree)
    done = run(tree, runtime, *CONTRACT)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    assert " passed" in done.stdout
    assert "Sanitizer" not in done.stdout + done.stderr  # of a process that a test started


@pytest.mark.rare
@pytest.mark.parametrize(
    ("sound", "error", "says"),
    [
        ("held[SLOT];", "held[SLOT - 8];", "AddressSanitizer"),
        ("value = value * 10 + (text[i] - '0');", "value = value * 100000000 + (text[i] - '0');", "runtime error"),
    ],
    ids=["a buffer that is too short", "a number that is too large"],
)
def test_an_error_in_them_would_be_noticed(tree: Path, runtime: str, sound: str, error: str, says: str) -> None:
    source = tree / SOURCE
    text = source.read_text()
    assert text.count(sound) == 1
    source.write_text(text.replace(sound, error))
    build(tree, warnings="-w")
    done = run(tree, runtime, LANDS[0])
    assert done.returncode != 0
    assert says in done.stdout + done.stderr
