"""Windows' Python, under wine, runs the tests of the folder `windows`: each test here is one run of them.

`./dev test` runs a choice, which takes two minutes; `./dev test all` runs all of them.
"""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.platforms.conftest import SAID, failures, totals
from tests.servers import PostgresServer, RedisServer, need
from tests.servers.windows import WindowsPython
from tests.torture.report import as_text
from tests.torture.runs import ON_WINDOWS, tortured

FOLDER = Path(__file__).parent / "windows"
LIMIT = 900  # seconds, on a busy machine; of each test in a run pytest.ini there has a limit too
LONGEST = 3000  # with all of the contract


@contextmanager
def _named(name: str) -> Iterator[str]:
    yield name


@contextmanager
def _redis() -> Iterator[str]:
    need("redis")
    with RedisServer("redis") as server:
        yield server.url


@contextmanager
def _postgresql() -> Iterator[str]:
    need("postgres")
    with PostgresServer() as server:
        yield f"{server.url}?create=true"


STORES: dict[str, Callable[[], AbstractContextManager[str]]] = {
    "memory": lambda: _named("memory"),
    "file": lambda: _named("file"),
    "sqlite": lambda: _named("sqlite"),
    "redis": _redis,
    "postgresql": _postgresql,
}
"""The stores on which the contract runs, and how each begins."""
OTHERS = {
    "command": ("test_command.py",),
    "files": ("test_files.py",),
    "processes": ("--ignore=test_contract.py", "--ignore=test_command.py", "--ignore=test_files.py"),
}
"""The other runs, and their words for pytest; together they run all files."""
NAMED = {"command": "", "files": "", "processes": "memory file sqlite"}
"""The stores of these runs, beside Redis."""
LOOPS = {"postgresql": "selector"}
"""The event loops of tasks, unless Windows' default."""


def run(windows: WindowsPython, record: Callable[[str, object], None], what: str, whole: bool, *words: str,
        **more: str) -> None:  # fmt: skip
    """Let Windows' Python run tests, and say what came of them."""
    arguments = ["-m", "pytest", "-q", *(["--whole"] if whole else []), *words]
    try:
        ran = windows.run(*arguments, timeout=LONGEST if whole else LIMIT, cwd=FOLDER, more=more)
        status, output = ran.returncode, ran.stdout
    except subprocess.TimeoutExpired as error:
        status, output = -1, f"{(error.output or b'').decode(errors='replace')}\n{error}"
    record(SAID, f"windows: {what}: {totals(output)}")
    if status:
        pytest.fail(failures(output), pytrace=False)


@pytest.fixture
def whole(request: pytest.FixtureRequest) -> bool:
    return not request.config.getoption("thin")


@pytest.mark.usefixtures("takes_long")
@pytest.mark.timeout(LONGEST + 60)
@pytest.mark.parametrize("name", STORES)
def test_the_contract_holds_on_windows(
    name: str, windows: WindowsPython, record_property: Callable[[str, object], None], whole: bool
) -> None:
    with STORES[name]() as store:
        more = {"INTERLOCK_TEST_STORES": store, "INTERLOCK_TEST_LOOP": LOOPS.get(name, "")}
        run(windows, record_property, f"contract on {name}", whole, "test_contract.py", **more)


@pytest.mark.usefixtures("takes_long")
@pytest.mark.timeout(LONGEST + 60)
@pytest.mark.parametrize("what", OTHERS)
def test_the_other_tests_pass_on_windows(
    what: str, windows: WindowsPython, record_property: Callable[[str, object], None], whole: bool
) -> None:
    with _redis() as store:
        more = {"INTERLOCK_TEST_STORES": f"{NAMED[what]} {store}"}
        run(windows, record_property, what, whole, *OTHERS[what], **more)


@pytest.mark.rare
@pytest.mark.usefixtures("takes_long", "windows")
@pytest.mark.timeout(LIMIT)
@pytest.mark.parametrize("kind", ON_WINDOWS)
def test_processes_are_killed_and_stopped_on_windows(
    kind: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    verdict = tortured(kind, tmp_path, procs=4, threads=2, secs=30.0, seed=1, slack=4.0)
    record_property(SAID, f"windows: torture of {kind}: {as_text(verdict)}")
    assert verdict.violations == [], as_text(verdict)
    assert {"kill", "stop", "loop"} <= {*verdict.faults}
