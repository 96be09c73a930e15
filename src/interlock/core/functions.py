"""Checks of decorated functions, and lock names from their arguments."""

import functools
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import AbstractContextManager
from typing import Any, Literal, TypeAlias, TypeVar

from interlock.core.errors import InvalidArgument

T = TypeVar("T")
FunctionKind: TypeAlias = Literal["function", "coroutine function", "generator function", "async generator function"]
# By their methods, because Cython and mypyc have types of their own.
AWAITABLE_KINDS = {Coroutine: "a coroutine", AsyncGenerator: "an async generator", Generator: "a generator"}
INSTEAD: dict[FunctionKind, str] = {
    "function": "Use a lock of connect().",
    "coroutine function": "Use a lock of aconnect(), or this lock by `with` inside the function.",
    "generator function": "Hold the lock by `with` inside the function.",
    "async generator function": "Hold a lock of aconnect() by `async with` inside the function.",
}
LOCKED = (
    ", which would run after the release of the lock. Decorate the function that does the work, or use `with` "
    "inside it."
)


def checked_kind_of(function: object) -> FunctionKind:
    """Return `kind_of(function)` for a decorator that locks.

    Raises:
        InvalidArgument: the function is a class, or is not callable.
    """
    if isinstance(function, type):
        raise InvalidArgument(f"{shown(function)} is a class. Decorate the methods that need the lock.")
    if not callable(function):
        raise InvalidArgument(
            f"{shown(function)} is not callable. Put the decorator below @classmethod or @property."
        )
    return kind_of(function)


def check_kind(function: object, wanted: FunctionKind) -> None:
    """Raise InvalidArgument unless the function is of the `wanted` kind."""
    kind = checked_kind_of(function)
    if kind != wanted:
        raise InvalidArgument(f"{shown(function)} is a {kind}, not a {wanted}. {INSTEAD[kind]}")


def around_generator(
    lock: AbstractContextManager[object], function: Callable[..., Generator[object, object, T]]
) -> Callable[..., Generator[object, object, T]]:
    """Return a generator function that holds a lock from its first `next` until its end."""

    @functools.wraps(function)
    def locked(*args: object, **kwargs: object) -> Generator[object, object, T]:
        with lock:
            return (yield from function(*args, **kwargs))

    return locked


def kind_of(function: object) -> FunctionKind:
    """Return the kind of a function, method, `functools.partial` or callable object."""
    import inspect  # slow to load

    code = _with_code(function)
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(code):  # perhaps only marked as one
        return "coroutine function"
    if inspect.isasyncgenfunction(code):
        return "async generator function"
    return "generator function" if inspect.isgeneratorfunction(code) else "function"


def _with_code(function: object) -> Any:
    """Return the function whose code runs when `function` is called, as far as known."""
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


def refuse_awaitable(result: object, function: object, advice: str = LOCKED) -> None:
    """Refuse a result whose work has not run, such as a coroutine.

    Raises:
        InvalidArgument: the result is a coroutine or a generator; it is closed.
    """
    kind: object = type(result)
    what = _unfinished(kind)
    if what is None:
        return
    if isinstance(result, (Coroutine, Generator)):
        result.close()
    raise InvalidArgument(f"{shown(function)} returned {what}{advice}")


@functools.lru_cache(256)
def _unfinished(kind: type) -> str | None:
    """Return what a type of unfinished results is called; None for other types."""
    if kind.__module__ == "contextlib" and kind.__name__.endswith("GeneratorContextManager"):
        return "a context manager made of a generator"
    return next((what for each, what in AWAITABLE_KINDS.items() if issubclass(kind, each)), None)


def shown(function: object) -> str:
    """Return the name of a function for a message; not every function has one."""
    return str(getattr(function, "__qualname__", None) or repr(function))


NameFor: TypeAlias = Callable[[Any, Any], str]
COMPILED_FUNCTION = "none that are known (use `async with` inside a coroutine function compiled by mypyc)"


def name_of_arguments(name: str, function: Callable[..., object], decorator: str) -> NameFor:
    """Return a function that builds the lock's name from the arguments of a call.

    Args:
        name: the lock's name, with `{id}`, `{book.pk}` or `{kwargs[key]}` for arguments of the function.
        function: the decorated function.
        decorator: the name of the decorator, for messages.

    Raises:
        InvalidArgument: the name mentions an unknown argument, or the function is a generator.  When called: these
            arguments do not give a name.
    """
    import inspect  # slow to load

    if checked_kind_of(function) in ("generator function", "async generator function"):
        raise InvalidArgument(
            f"{decorator}() cannot hold a lock while a generator is being read. Use `with` inside it."
        )
    wanted = _arguments_in(name)
    if not wanted:  # the arguments of a function compiled by mypyc may be unknown
        return lambda args, kwargs: name.format()
    # A partial that names its wrapped function, like Django's method_decorator, hides `self`.
    signature = inspect.signature(function, follow_wrapped=not isinstance(function, functools.partial))
    parameters = signature.parameters.values()
    swallowing = next((each.name for each in parameters if each.kind is each.VAR_KEYWORD), "")
    missing = sorted(wanted - set(signature.parameters))
    if missing and (not swallowing or not missing[0].isidentifier()):
        listed = ", ".join(signature.parameters) or ("none" if inspect.isfunction(function) else COMPILED_FUNCTION)
        raise InvalidArgument(
            f"The lock name {name!r} mentions {{{missing[0]}}}. {shown(function)} has the arguments: {listed}."
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
            raise InvalidArgument(f"The lock name {name!r} cannot be made of these arguments: {error!r}.") from error

    return name_for


def _arguments_in(name: str) -> set[str]:
    from string import Formatter  # only where a name has fields: it is slow to load

    try:
        return {field.split(".")[0].split("[")[0] for _, field, _, _ in Formatter().parse(name) if field is not None}
    except ValueError as error:
        raise InvalidArgument(f"{name!r} is not a valid lock name: {error}. Double each literal brace.") from error
