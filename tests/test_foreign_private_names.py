"""The private names of other libraries that we use: each in one module (`tests.support.budget.FOREIGN`), and only if
there is no public name.  If a new version of a library lacks one, this test fails first."""

import asyncio
import hashlib
from collections.abc import Callable
from importlib import import_module
from inspect import getsource

import pytest

from tests.support import budget

PINNED: dict[str, Callable[[], bool]] = {
    "_blake2": lambda: import_module("_blake2").blake2b is hashlib.blake2b,  # hashlib loads OpenSSL
    "_get_running_loop": lambda: asyncio._get_running_loop() is None,  # the public one raises
    "_creator": lambda: (
        pytest.importorskip("sqlalchemy").create_engine("sqlite://").pool._creator.__qualname__
        == "create_engine.<locals>.connect"
    ),
    "_read_timeout": lambda: (  # the public way sets it once for all
        pytest.importorskip("pymysql").Connection(defer_connect=True, read_timeout=7)._read_timeout == 7
    ),
    "_update": lambda: callable(
        pytest.importorskip("django.db.models").QuerySet._update
    ),  # takes columns, not fields
    "_from_testcase": lambda: "_from_testcase" in getsource(pytest.importorskip("django.test").TestCase),
    "_free": lambda: all(
        hasattr(node, "release") or "_free" in node.__slots__
        for node in (pytest.importorskip(f"{library}.asyncio.cluster").ClusterNode for library in ("redis", "valkey"))
    ),
}


@pytest.mark.parametrize("name", PINNED)
def test_the_private_name_is_where_we_look_for_it(name: str) -> None:
    assert PINNED[name](), f"{name} is gone, or is another thing"


def test_foreign_private_names_are_exactly_those_listed() -> None:
    assert budget.foreign_names() == budget.FOREIGN, "use what is public; remove from the list what is no longer used"
    assert budget.FOREIGN.keys() == PINNED.keys()
