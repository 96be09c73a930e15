"""`with` blocks: each has its own end, and whoever has left one is noticed; grants that nobody released are told."""

import gc
import sys
import warnings
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from interlock import connect
from interlock.locks import leases, unreleased
from interlock.locks.blocks import enter, entering, one_for_each_block, somebody
from interlock.locks.unreleased import caller, warn


class Door:
    """Something with a `with` that notes what the end of each block was entered with."""

    def __init__(self) -> None:
        self.left: list[Any] = []
        self.entered: list[Any] = []

    def __enter__(self) -> Any:
        block = entering(self)
        grant = SimpleNamespace(_block=None)
        enter(block, grant)
        self.entered.append(block)
        return grant

    @one_for_each_block
    def __exit__(self, block: list[Any], kind: Any, error: Any, trace: Any) -> None:
        """Leave."""
        self.left.append((list(block), kind))


def test_each_block_ends_with_its_own_grant_and_is_known_until_then() -> None:
    door = Door()
    with pytest.raises(KeyError):
        with door as outer:
            with door as inner:
                assert outer._block is not inner._block
                assert outer._block() is not None
                assert inner._block() is not None
            raise KeyError
    assert door.left == [([inner], None), ([outer], KeyError)]
    blocks = [outer._block, inner._block]
    assert somebody not in blocks
    with door:
        pass
    gc.collect()
    assert [block() for block in blocks] == [None, None]


def test_a_block_of_which_nothing_is_known_is_somebodys() -> None:
    door, other = Door(), Door()
    with ExitStack() as stack:
        grant = stack.enter_context(door)
        assert grant._block is somebody
    assert door.left == [([], None)]
    assert somebody() is True
    end = door.__exit__
    assert entering(other) is somebody, "it was looked at for another one"
    block = entering(door)
    assert block() is end
    assert entering(door) is block
    enter(block, SimpleNamespace())
    assert entering(door) is somebody, "it was entered already"
    del end
    assert entering(door) is somebody
    assert Door.__exit__.__name__ == "__exit__"


@pytest.mark.parametrize("development", [True, False])
def test_the_warning_says_where_it_was_acquired_outside_of_the_library_in_development_mode(
    development: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "DEV", development)
    here = sys._getframe().f_lineno
    assert caller() == f" (acquired at {__file__}:{here + 1})"
    with connect(f"memory://{uuid4().hex}") as locks, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        here = sys._getframe().f_lineno
        locks.lock("door").acquire()
        gc.collect()
    assert [str(each.message) for each in warned] == [
        "the lock 'door' was never released: its grant and its lock object were collected while it was held, so its "
        "lease is renewed no more and ends; use `with`, or keep the grant and call release()"
        + f" (acquired at {__file__}:{here + 1})"
        * development
    ]


def test_the_warning_names_who_dropped_the_grant_and_is_not_given_while_python_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def dropped() -> None:
        warn("app\0door", "", None)

    def drops() -> int:
        line = sys._getframe().f_lineno
        dropped()
        return line + 1

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        line = drops()
        monkeypatch.setattr(unreleased.sys, "is_finalizing", lambda: True)
        dropped()
    assert [(each.category, each.lineno, each.filename) for each in warned] == [(ResourceWarning, line, __file__)]
