"""Test tools for sites: locks in memory instead of the configured ones, and assertions."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from django.db import models

from interlock.api._sync.locks import Locks
from interlock.api.connect import aconnect, connect
from interlock.core.claims import USING
from interlock.django.conf import DEFAULT, place
from interlock.django.configured import alocks, locks
from interlock.django.row_names import RowName
from interlock.testing.fakes import FakeLocks


@contextmanager
def override_locks(alias: str = DEFAULT, url: str | None = None, fake: FakeLocks | None = None) -> Iterator[Locks]:
    """Use locks in memory for an alias of INTERLOCK: as a context manager, or on a test function.

    Each use has a new memory, so tests do not see each other's claims.

    Args:
        alias: the alias in INTERLOCK.
        url: the URL of another store, instead of memory.
        fake: a `FakeLocks` with faults, instead of both.
    """
    configured = place(alias)
    where = url or f"memory://{uuid4().hex}"
    how: Any = {"namespace": configured.namespace, "ttl": configured.ttl}
    if fake is not None:
        made, amade = fake.connect(**how), fake.aconnect(**how)
    else:
        made, amade = connect(where, **how), aconnect(where, **how)
    before, abefore = locks.put(alias, made), alocks.put(alias, amade)
    try:
        yield made
    finally:
        alocks.put(alias, abefore)
        amade._client.drop()
        locks.put(alias, before)
        made.close()


class LocksMixin:
    """A mixin for `TestCase`: locks in memory for each test, and assertions about them.

        class BorrowingTest(LocksMixin, TestCase):
            def test_a_book_is_free_again(self):
                borrow(self.book)
                self.assertFree(self.book)

    A `TestCase` never commits.  A lock that is taken inside an `atomic()` of the tested code is held until
    `captureOnCommitCallbacks(execute=True)` ends, or else until the end of the test.
    """

    locks_alias = DEFAULT

    def setUp(self) -> None:
        """Replace the configured locks by locks in memory."""
        super().setUp()  # type: ignore[misc]
        self.enterContext(override_locks(self.locks_alias))  # type: ignore[attr-defined]

    def assertHeld(self, what: "str | models.Model") -> None:
        """Fail unless the lock of that name or row is held."""
        assert_held(what, self.locks_alias)

    def assertFree(self, what: "str | models.Model") -> None:
        """Fail if the lock of that name or row has a holder or a waiter."""
        assert_free(what, self.locks_alias)


def assert_held(what: "str | models.Model", alias: str = DEFAULT) -> None:
    """Fail unless a lock is held.

    Args:
        what: the name of the lock, or an instance whose row is occupied.
        alias: the alias in INTERLOCK.
    """
    name = name_of(what, alias)
    if not any(view.state == USING for view in locks[alias].claims(name)):
        raise AssertionError(f"{name!r} is not held")


def assert_free(what: "str | models.Model", alias: str = DEFAULT) -> None:
    """Fail if a lock has a holder or a waiter; arguments as for `assert_held`."""
    name = name_of(what, alias)
    for view in locks[alias].claims(name):
        raise AssertionError(f"{name!r} is {view.state} by {view.thread or view.pid} {view.label}".rstrip())


def name_of(what: "str | models.Model", alias: str = DEFAULT) -> str:
    """Return the name of the lock that `occupy` takes for an instance; return a name unchanged."""
    return what if isinstance(what, str) else RowName(type(what), what.pk, what).name(alias)
