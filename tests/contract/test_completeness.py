"""Completeness: every store and every kind is in the tables, and both colours have the same interface."""

import inspect
import tomllib
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

import interlock
from interlock.api._async.locks import AsyncLocks
from interlock.api._sync.locks import Locks
from interlock.api.connect import BUILT_IN
from interlock.client._async.grants import AsyncGrant, AsyncGrants
from interlock.client._async.lock import AsyncAllLock, AsyncLock, AsyncRLock
from interlock.client._sync.grants import Grant, Grants
from interlock.client._sync.lock import AllLock, Lock, RLock
from interlock.client.base_lock import ReadWrite
from interlock.testing.store_fixture import KINDS, StoreFixture
from tests.support.stores import PARTIAL_ROWS, ROWS

NOT_KINDS = {"guard", "claims", "evict", "doctor", "close", "store", "namespace", "namespaces", "subscribe"}
PRODUCTS = {"once", "is_done", "forget", "election", "one_of", "attach", "renew", "release"}  # chapters of their own
SYNC_AND_ASYNC = [
    (Locks, AsyncLocks), (Lock, AsyncLock), (RLock, AsyncRLock), (AllLock, AsyncAllLock), (Grant, AsyncGrant),
    (Grants, AsyncGrants), (interlock.connect, interlock.aconnect),
]  # fmt: skip
SPECIAL = {"__enter__": "__aenter__", "__exit__": "__aexit__"}


def public(owner: type) -> set[str]:
    """Return the public names of a class."""
    return {name for name in dir(owner) if not name.startswith("_")}


def shape(function: Any) -> list[tuple[str, Any, Any]]:
    """Return names, kinds and defaults of the parameters."""
    parameters = inspect.signature(function).parameters.values()
    return [(each.name, each.kind, repr(each.default)) for each in parameters]


def test_every_scheme_of_the_registry_is_in_the_table_of_stores() -> None:
    schemes = set(BUILT_IN) | {point.name for point in entry_points(group="interlock.stores")}
    assert schemes == {scheme for row in ROWS + PARTIAL_ROWS for scheme in row.schemes}


def test_the_registry_alone_names_the_stores_of_ours() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert "interlock.stores" not in project.get("entry-points", {})
    for where in set(BUILT_IN.values()):
        module, _, name = where.partition(":")
        assert callable(getattr(import_module(module), name).from_url)


def test_every_kind_of_lock_is_in_the_table_of_kinds() -> None:
    made = {kind.factory for kind in KINDS} | {"all"}  # `all` has a chapter of its own
    for locks in (Locks, AsyncLocks):
        assert public(locks) - NOT_KINDS - PRODUCTS == made
    assert public(ReadWrite) == {"read", "write"}
    assert {kind.name for kind in KINDS} >= {"reader", "writer"}


@pytest.mark.parametrize("pair", SYNC_AND_ASYNC, ids=lambda pair: pair[0].__name__)
def test_both_colours_have_the_same_names_and_signatures(pair: tuple[Any, Any]) -> None:
    one, other = pair
    if isinstance(one, FunctionType):
        assert shape(one) == shape(other)
        return
    assert public(one) == public(other)
    for name in [*public(one), "__call__", "__init__", *SPECIAL]:
        mine, theirs = inspect.getattr_static(one, name, None), getattr(other, SPECIAL.get(name, name), None)
        assert (mine is None) == (theirs is None), name
        if isinstance(mine, FunctionType):
            assert shape(mine) == shape(theirs), name
        elif isinstance(mine, property):
            assert isinstance(inspect.getattr_static(other, name), property), name


@pytest.mark.parametrize("pair", SYNC_AND_ASYNC, ids=lambda pair: pair[0].__name__)
def test_what_does_not_wait_is_no_coroutine_in_either_colour(pair: tuple[Any, Any]) -> None:
    one, other = pair
    assert not inspect.iscoroutinefunction(one)
    if isinstance(one, FunctionType):
        assert not inspect.iscoroutinefunction(other)
        return
    waits = {"acquire", "release", "renew", "locked", "claims", "namespaces", "evict", "doctor", "close"}
    waits |= {"attach", "detach", "downgrade", "is_done", "forget"}
    waits &= public(other)
    found = {name for name in public(other) if inspect.iscoroutinefunction(inspect.getattr_static(other, name))}
    assert found == waits
    assert not any(inspect.iscoroutinefunction(inspect.getattr_static(one, name)) for name in public(one))


def test_the_package_says_what_is_public() -> None:
    for name in interlock.__all__:
        assert getattr(interlock, name).__doc__
    for error in ("LockTimeout", "LockLost", "NotHeld", "StoreError", "InvalidArgument"):
        assert issubclass(getattr(interlock, error), interlock.LockError)
    assert issubclass(interlock.LockTimeout, TimeoutError)
    assert issubclass(interlock.NotHeld, RuntimeError)
    assert issubclass(interlock.InvalidArgument, ValueError)


def test_every_store_of_ours_tells_since_when_a_claim_holds(place: StoreFixture) -> None:
    with Locks(place.open()) as locks, locks.lock("book"):
        (view,) = locks.claims("book")
        assert view.held_since is not None
        assert abs(view.held_since - view.since) < 1
