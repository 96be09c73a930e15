"""The pytest plugin: `once_per_run`, and a clock that freezegun leaves alone.

Every pytest run with interlock installed loads it, also where interlock is only a dependency of something else: it
imports nothing before a fixture is used, and fixtures with common names are in `interlock.testing.fixtures`.
"""

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from interlock.testing.once_per_run import OncePerRun

RUNS: "pytest.StashKey[OncePerRun]" = pytest.StashKey()


def pytest_collection_finish() -> None:
    """Exclude interlock's clock from freezegun, if the tests have imported that."""
    freezegun: Any = sys.modules.get("freezegun")
    if freezegun is not None:
        freezegun.configure(extend_ignore_list=["interlock.runtime.clock"])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Wait until what `once_per_run` made is undone: here, because time limits of tests do not count any more."""
    runs = session.config.stash.get(RUNS, None)
    if runs is not None:
        runs.wait()
        runs.close()


@pytest.fixture(scope="session")
def once_per_run_url(tmp_path_factory: pytest.TempPathFactory) -> "str | os.PathLike[str]":
    """The store of `once_per_run`, to be overridden: by default a folder of this test run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "interlock-once"
    return folder.absolute()


@pytest.fixture(scope="session")
def once_per_run(pytestconfig: pytest.Config, once_per_run_url: "str | os.PathLike[str]") -> "Iterator[OncePerRun]":
    """`once_per_run(name, make, undo=None)` calls `make` once in the whole test run, for all xdist workers.

    All callers get its result after a round trip through JSON; if it raises, the next caller calls it again.  The
    last worker that used the name calls `undo` with the result.
    """
    from uuid import uuid4

    from interlock import connect
    from interlock.testing.once_per_run import OncePerRun

    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid4().hex
    runs = pytestconfig.stash[RUNS] = OncePerRun(connect(once_per_run_url, namespace=f"once-per-run:{run}"))
    yield runs
    runs.end()
