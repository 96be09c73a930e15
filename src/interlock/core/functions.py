"""Which functions a decorator can hold a lock around: those whose work is done when they return."""

import functools
from collections.abc import AsyncGenerator, Coroutine, Generator
from typing import Any, Literal, TypeAlias

from interlock.core.errors import InvalidArgument

Kind: TypeAlias = Literal["function", "coroutine function", "generator function", "async generator function"]
# By what they can do: those of Cython and mypyc have types of their own.
UNFINISHED = {Coroutine: "a coroutine", AsyncGenerator: "an async generator", Generator: "a generator"}
LOCKED = (
    ", which would run when the lock is released already; decorate the function that does the work, or use `with` "
    "inside it"
)


def checked_kind_of(function: object) -> Kind:
    """As `kind_of`, for a decorator that locks.

    Raises:
        InvalidArgument: it can't be called, or is a class.
    """
    if isinstance(function, type):
        raise InvalidArgument(f"{shown(function)} is a class: decorate the methods that need the lock")
    if not callable(function):
        raise InvalidArgument(
            f"{shown(function)} can't be called, so it can't be decorated; below @classmethod or @property it can"
        )
    return kind_of(function)


def kind_of(function: object) -> Kind:
    """Return what `function` is, be it a function, a method, a `functools.partial` or an object with `__call__`."""
    import inspect  # slow to load

    code = _with_code(function)
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(code):  # it may only be marked as one
        return "coroutine function"
    if inspect.isasyncgenfunction(code):
        return "async generator function"
    return "generator function" if inspect.isgeneratorfunction(code) else "function"


def _with_code(function: object) -> Any:
    """Return the function whose code runs when `function` is called, as far as that can be seen."""
    for _ in range(100):
        if isinstance(function, functools.partial):
            function = function.func
        elif hasattr(function, "__func__"):
            function = function.__func__
        elif not hasattr(type(function).__call__, "__code__"):
            break
        else:
            function = type(function).__call__
    return function


def see_it_finished(result: object, function: object, advice: str = LOCKED) -> None:
    """Refuse a result whose work is still to be done.

    Raises:
        InvalidArgument: it is a coroutine or a generator; it is closed.
    """
    kind: Any = type(result)
    what = _unfinished(kind)
    if what is None:
        return
    if isinstance(result, (Coroutine, Generator)):
        result.close()
    raise InvalidArgument(f"{shown(function)} returned {what}{advice}")


@functools.lru_cache(256)
def _unfinished(kind: type) -> str | None:
    """Return what results of a type are whose work is still to be done; None if it is done."""
    if kind.__module__ == "contextlib" and kind.__name__.endswith("GeneratorContextManager"):
        return "a context manager made of a generator"
    return next((what for each, what in UNFINISHED.items() if issubclass(kind, each)), None)


def shown(function: object) -> str:
    """Return what to call a function in a message; not each has a name."""
    return str(getattr(function, "__qualname__", None) or repr(function))
