"""What a decorator asks of a function: can a lock be held around its work, and what is its name for a call."""

import functools
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import AbstractContextManager
from typing import Any, Literal, TypeAlias, TypeVar

from interlock.core.errors import InvalidArgument

T = TypeVar("T")
Kind: TypeAlias = Literal["function", "coroutine function", "generator function", "async generator function"]
# By what they can do: those of Cython and mypyc have types of their own.
UNFINISHED = {Coroutine: "a coroutine", AsyncGenerator: "an async generator", Generator: "a generator"}
INSTEAD: dict[Kind, str] = {
    "function": "use a lock of connect()",
    "coroutine function": "use a lock of aconnect(), or hold this one by `with` in it",
    "generator function": "hold the lock by `with` in it",
    "async generator function": "hold a lock of aconnect() by `async with` in it",
}
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


def check_kind(function: object, wanted: Kind) -> None:
    """Raise InvalidArgument unless a lock whose work is done by a `wanted` can be held around a function."""
    kind = checked_kind_of(function)
    if kind != wanted:
        raise InvalidArgument(f"{shown(function)} is a {kind}, not a {wanted}: {INSTEAD[kind]}")


def around_generator(
    lock: AbstractContextManager[object], function: Callable[..., Generator[object, object, T]]
) -> Callable[..., Generator[object, object, T]]:
    """Return a generator function that holds a lock from its first `next` until it is read to the end or closed."""

    @functools.wraps(function)
    def locked(*args: object, **kwargs: object) -> Generator[object, object, T]:
        with lock:
            return (yield from function(*args, **kwargs))

    return locked


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


NameFor: TypeAlias = Callable[[Any, Any], str]
UNTOLD = "none that it tells (a coroutine function that mypyc has compiled does not: use `async with` in it)"


def name_of_arguments(name: str, function: Callable[..., object], decorator: str) -> NameFor:
    """Return what makes the lock's name of a call's positional and keyword arguments.

    Args:
        name: with `{id}`, `{book.pk}` or `{kwargs[key]}` for arguments of the function.
        function: what is decorated.
        decorator: what it is called, for messages.

    Raises:
        InvalidArgument: the name mentions what the function has no argument for, or the function is a generator.
            When called: the name can't be made of these arguments.
    """
    import inspect  # slow to load

    if checked_kind_of(function) in ("generator function", "async generator function"):
        raise InvalidArgument(
            f"{decorator}() can't hold a lock while a generator is being read; use `with` inside it"
        )
    wanted = _arguments_in(name)
    if not wanted:  # then the call's arguments may be unknown, as those of what mypyc has compiled
        return lambda args, kwargs: name.format()
    # A partial that says what it wraps, as Django's method_decorator makes it, hides `self`.
    signature = inspect.signature(function, follow_wrapped=not isinstance(function, functools.partial))
    parameters = signature.parameters.values()
    swallowing = next((each.name for each in parameters if each.kind is each.VAR_KEYWORD), "")
    missing = sorted(wanted - set(signature.parameters))
    if missing and (not swallowing or not missing[0].isidentifier()):
        told = ", ".join(signature.parameters) or ("none" if inspect.isfunction(function) else UNTOLD)
        raise InvalidArgument(
            f"the lock's name {name!r} mentions {{{missing[0]}}}, but {shown(function)} has the arguments: {told}"
        )

    def name_for(args: tuple[object, ...], kwargs: dict[str, object]) -> str:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        values = dict(bound.arguments)
        if swallowing:
            values = {**values[swallowing], **values}
        try:
            return name.format_map(values)
        except (KeyError, AttributeError, IndexError, TypeError, ValueError) as error:
            raise InvalidArgument(f"the lock's name {name!r} can't be made of these arguments: {error!r}") from error

    return name_for


def _arguments_in(name: str) -> set[str]:
    from string import Formatter  # only where a name has fields: it is slow to load

    try:
        return {field.split(".")[0].split("[")[0] for _, field, _, _ in Formatter().parse(name) if field is not None}
    except ValueError as error:
        raise InvalidArgument(f"{name!r} is no name with arguments: {error}; double a brace that is meant") from error
