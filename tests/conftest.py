"""Fixtures that several folders of tests share."""

import gc
import os
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from interlock.runtime import log
from interlock.testing.store_fixture import StoreFixture
from tests.support.signal_defaults import take_signals_as_at_a_terminal
from tests.support.stores import PARTIAL_ROWS, ROWS, Row

take_signals_as_at_a_terminal()  # before anything starts a thread or a process

STORES = frozenset(row.name for row in (*ROWS, *PARTIAL_ROWS))

MANY = 24
"""The number of combinations from which `--thin` omits some; all stores in both colours are fewer."""

IN_ONE_INTERFACE = (
    "file", "sqlite", "mariadb", "orm", "postgresql", "redis", "etcd", "s3", "postgresql+advisory", "mysql+advisory",
    "valkey", "records", "texts that are swapped", "share", "dynamodb",
)  # fmt: skip
"""Stores on which each test runs in one colour only: both colours have the same source, or tasks use threads.

Redis and Valkey have the same code: each test runs with threads on one of them, and with tasks on the other.
"""

SPREAD = "field"
"""The folder of tests that each run on half of their stores only: they test the client in programs of many kinds."""

FEW = 4  # a test with fewer stores runs on all of them

EVERY = 6  # one of so many combinations is kept, if the parameters have so many values


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options that select some of the many combinations of parameters, as `./dev test` does."""
    parser.addoption("--thin", action="store_true", help="some of many combinations, nothing rare")
    parser.addoption("--whole", dest="thin", action="store_false", help="run all of them after all")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Apply the options."""
    kept = items
    if config.getoption("thin"):
        kept = [
            item
            for item in spread(for_one_interface(thinned(items)))
            if item.get_closest_marker("rare") is None and _store(item) != "bucket in memory"  # the code of s3://
        ]
    kept.sort(key=_store)  # sorted by store, so that each worker starts only one or two servers
    chosen = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = kept


def thinned(items: list[pytest.Item]) -> list[pytest.Item]:
    """Omit most combinations of tests that have many; the remaining ones are a Latin square.

    Each test runs on each store in both colours with one kind of lock, and with each kind on some stores.  The pairs
    of kind and store differ from test to test, so that all pairs occur.  `./dev test all` runs all combinations.
    """
    tests: dict[tuple[str, str], list[dict[str, object]]] = {}
    for item in items:
        tests.setdefault(_test(item), []).append(_values(item))
    axes = {test: _axes(combinations) for test, combinations in tests.items()}
    return [item for item in items if _is_kept(_values(item), axes[_test(item)], crc32(_test(item)[1].encode()))]


def for_one_interface(items: list[Any]) -> list[Any]:
    """Omit one colour of each test on most stores; which one differs from test to test, and from store to store.

    Both colours have the same source; their differences are tested in memory, and on Redis or Valkey.
    """
    found: dict[tuple[tuple[str, str], str], dict[str, list[Any]]] = {}
    for item in items:
        store = "orm" if "_orm_" in item.path.name else _store(item)
        sync_or_async = next(filter(("threads", "tasks").__contains__, _words(item)), "")
        if store in IN_ONE_INTERFACE and sync_or_async:
            found.setdefault((_test(item), store), {}).setdefault(sync_or_async, []).append(item)
    left_out: set[Any] = set()
    for (test, store), colours in found.items():
        if len(colours) == 2 and (store != "valkey" or (test, "redis") in found):
            left_out |= {
                *colours[("threads", "tasks")[(crc32(test[1].encode()) + IN_ONE_INTERFACE.index(store)) % 2]]
            }
    return [item for item in items if item not in left_out]


def spread(items: list[Any]) -> list[Any]:
    """Omit every second store of each test in the folder `SPREAD`; which stores differs from test to test."""
    stores: dict[tuple[str, str], list[str]] = {}
    for item in items:
        if item.path.parent.name == SPREAD:
            seen = stores.setdefault(_test(item), [])
            seen += {_store(item)} - {"", *seen}
    left_out = {
        (test, store)
        for test, seen in stores.items()
        if len(seen) >= FEW
        for store in seen[crc32(test[1].encode()) % 2 :: 2]
    }
    return [item for item in items if (_test(item), _store(item)) not in left_out]


def _is_kept(values: dict[str, object], axes: dict[str, list[object]], start: int) -> bool:
    if not axes:
        return True
    # The second largest number of values: then each value of each parameter stays in some combination.
    modulus = min(EVERY, sorted(map(len, axes.values()))[-2])
    return (start + sum(seen.index(values[name]) for name, seen in axes.items())) % modulus == 0


def _axes(combinations: list[dict[str, object]]) -> dict[str, list[object]]:
    """Return the values of each parameter of a test, if it has many combinations and runs in all of them."""
    axes: dict[str, list[object]] = {}
    for combination in combinations:
        for name, value in combination.items():
            seen = axes.setdefault(name, [])
            if value not in seen:
                seen.append(value)
    varied = {name: seen for name, seen in axes.items() if len(seen) > 1}
    whole = prod(map(len, varied.values())) <= len(combinations)  # not several values by one parametrization
    many = len(varied) > 2 or (len(varied) == 2 and ("kind" in varied or len(combinations) >= MANY))
    return varied if whole and many else {}


def _test(item: pytest.Item) -> tuple[str, str]:
    return str(item.path), getattr(item, "originalname", None) or item.name


def _values(item: pytest.Item) -> dict[str, object]:
    """Return the value of each parameter of a test."""
    callspec = getattr(item, "callspec", None)
    return dict(callspec.params) if callspec else {}


def _words(item: Any) -> list[str]:
    """Return the values in the name of a test."""
    return item.callspec.id.split("-") if hasattr(item, "callspec") else []


def _store(item: Any) -> str:
    """Return the name of the store that a test runs on; "" for a test that is written for one."""
    return next(filter(STORES.__contains__, _words(item)), "")


def pytest_configure(config: pytest.Config) -> None:
    """Disable the garbage collector during the collection of tests, where it takes a third of the time.

    Also disable pytest's rewriting of the whole package of a plugin, which would be interlock itself: two threads
    that import at the same time would fail, since `ast.parse` of Python 3.11 is not thread-safe (CPython issue
    106905).
    """
    gc.disable()
    hook: Any = config.pluginmanager.rewrite_hook  # its set is private
    hook._must_rewrite.discard("interlock")


def pytest_collection_finish() -> None:
    """Freeze pytest's objects for the garbage collector, since `gc.collect()` in a test would take 0.2 s longer."""
    gc.freeze()
    gc.enable()
    os.environ.pop("COVERAGE_FILE", None)  # set for this run, not for those that tests start


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Unfreeze them: hypothesis, which may be imported only now, asks the garbage collector for referrers.

    A worker has imported all, and would only collect for two seconds what ends with it.
    """
    if not hasattr(session.config, "workerinput"):
        gc.unfreeze()


@pytest.fixture(params=ROWS, ids=lambda row: row.name)
def row(request: pytest.FixtureRequest) -> Row:
    """Each row of the table of stores."""
    found: Row = request.param
    return found


@pytest.fixture
def place(row: Row, tmp_path: Path) -> StoreFixture:
    """An empty place for locks, on each store of the table."""
    return row.place(tmp_path)


@pytest.fixture(autouse=True)
def _undiverted() -> Iterator[None]:
    """Restore the log: `interlock run` diverts the log of its process, which is the test process here."""
    yield
    log.sink = None
