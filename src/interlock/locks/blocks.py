"""The `with` blocks of locks and grants: whoever has left one is noticed, even if its `__exit__` never ran a line.

CPython raises KeyboardInterrupt also when a function is entered, before its first line; no `__exit__` can catch that.
But a `with` statement keeps what it got for `__exit__` for as long as its block lasts, however it is left.  So each
block gets a callable of its own, and a weak reference to that tells whether somebody is still inside.
"""

import threading
from collections.abc import Callable
from functools import partial, update_wrapper
from types import TracebackType
from typing import Any, TypeAlias, TypeVar, cast
from weakref import ref

R = TypeVar("R")
Block: TypeAlias = Callable[[], object | None]
"""Answers None when its `with` block has been left."""


class _Noted(threading.local):
    exit: "Callable[[], partial[Any] | None]" = staticmethod(lambda: None)


_noted = _Noted()


class _Exit:
    """The `__exit__` or `__aexit__` of a class, as a descriptor that makes a new callable for each block."""

    __slots__ = ("_leave", "_plain")

    def __init__(self, leave: Callable[..., Any]) -> None:
        self._leave = leave
        self._plain = update_wrapper(lambda instance, *about: leave(instance, [], *about), leave)

    def __get__(self, instance: object, owner: object = None) -> Any:
        if instance is None:
            return self._plain  # as contextlib.ExitStack asks for it
        exit = partial(self._leave, instance, [])
        _noted.exit = ref(exit)
        return exit


Error: TypeAlias = type[BaseException] | None
Leave: TypeAlias = Callable[[Any, list[Any], Error, BaseException | None, TracebackType | None], R]
Exit: TypeAlias = Callable[[Any, Error, BaseException | None, TracebackType | None], R]


def one_for_each_block(leave: Leave[R]) -> Exit[R]:
    """Make `leave(self, block, kind, error, trace)` the `__exit__` of a class.

    `block` is a list of its own for each `with`, which `enter` puts a grant into; its frame knows nothing else of the
    block, so that a traceback does not keep it alive.
    """
    return cast(Exit[R], _Exit(leave))


def somebody() -> object:
    """Stand for a block of which nothing is known but that it was entered; as `ExitStack` enters."""
    return True


def entering(instance: object) -> Block:
    """Return the block that the calling thread is about to enter; to be asked first thing in `__enter__`."""
    noted = _noted.exit
    exit = noted()
    if exit is not None:
        about, block = exit.args
        if about is instance and not block:
            return noted
    return somebody  # what is noted is left over from somebody who only looked at `__exit__`


def enter(block: Block, grant: Any) -> None:
    """Let `grant` be the one that the end of `block` releases."""
    if block is not somebody:
        exit: Any = block()
        exit.args[1].append(grant)
    grant._block = block
