"""Names of locks that are made of a function's arguments, as in `guard("user:{id}")`."""

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

from interlock.core.errors import InvalidArgument
from interlock.core.functions import checked_kind_of, shown

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
    swallows = any(each.kind is each.VAR_KEYWORD for each in parameters)
    missing = sorted(wanted - set(signature.parameters))
    if missing and (not swallows or not missing[0].isidentifier()):
        told = ", ".join(signature.parameters) or ("none" if inspect.isfunction(function) else UNTOLD)
        raise InvalidArgument(
            f"the lock's name {name!r} mentions {{{missing[0]}}}, but {shown(function)} has the arguments: {told}"
        )

    def name_for(args: tuple[object, ...], kwargs: dict[str, object]) -> str:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        values = dict(bound.arguments)
        for each in parameters:
            if each.kind is each.VAR_KEYWORD:
                values = {**values[each.name], **values}
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
