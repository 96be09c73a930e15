"""The contract that every store must keep, as tests for pytest; each runs with threads and with asyncio tasks.

To test your own store, write a test module with these lines and the one fixture that they need:

    import pytest
    from interlock.testing.contract import *
    from interlock.testing.contract import StoreFixture

    @pytest.fixture
    def place(tmp_path):
        url = f"toy://{tmp_path}"
        return StoreFixture(open=lambda: ToyStore.from_url(urlsplit(url)))

`place` describes a storage that is empty when the test begins; each call of `open` returns a new store on the same
lines.  Each module of this package is one chapter of the contract.
"""

from importlib import import_module
from typing import Any

import pytest

from interlock.testing.contract.fixtures import (
    ann,
    bob,
    eve,
    kind,
    locks,
    skipped_without,
    world,
    world_of_tasks,
    world_of_threads,
)
from interlock.testing.store_fixture import ContractWorld, LockKind, StoreFixture

CHAPTERS = (
    "names",
    "grants",
    "blocks",
    "garbage_collection",
    "exclusion",
    "sharing",
    "order",
    "timeouts",
    "maximum_waiters",
    "leases",
    "renewals",
    "minimum_hold",
    "loss",
    "fences",
    "reentry",
    "several_locks",
    "cancellation",
    "signals",
    "inspection",
    "instances",
    "events",
    "lost_replies",
    "waiting",
    "closing",
    "closing_in_use",
    "event_loop_turns",
    "slots",
    "once",
    "payloads",
    "elections",
    "callback_contexts",
    "detach_attach",
    "downgrade",
    "maximum_hold",
)

pytest.register_assert_rewrite(*(f"{__name__}.{chapter}" for chapter in CHAPTERS))


def _tests() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for chapter in CHAPTERS:
        for name, value in vars(import_module(f"{__name__}.{chapter}")).items():
            if name.startswith("test_"):
                if name in found:
                    raise ImportError(f"two tests of the contract are called {name}")
                found[name] = skipped_without(value)
    return found


_found = _tests()
globals().update(_found)

__all__ = [
    "ContractWorld",
    "LockKind",
    "StoreFixture",
    "ann",
    "bob",
    "eve",
    "kind",
    "locks",
    "world",
    "world_of_tasks",
    "world_of_threads",
]
__all__ += _found
