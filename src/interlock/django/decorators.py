"""`@occupies("report:{date}")`: a function that runs while a lock is held whose name its arguments make."""

import functools
import inspect
from collections.abc import Callable
from string import Formatter
from typing import Any, TypeVar

from asgiref.sync import iscoroutinefunction
from django.db import connections

from interlock.django.conf import DEFAULT
from interlock.django.occupation import Occupation
from interlock.errors import InvalidArgument

F = TypeVar("F", bound=Callable[..., Any])


def occupies(
    name: str,
    *,
    timeout: float | None = None,
    ttl: float | None = None,
    label: str | None = None,
    locks: str = DEFAULT,
) -> Callable[[F], F]:
    """Have a function, a view (sync or async) or a Celery task run while a lock is held.

    In a transaction the lock is kept until that is committed or rolled back, so the decorator may stand on a view
    under ATOMIC_REQUESTS.  A thread may enter again what it holds.

    Args:
        name: of the lock; `{date}`, `{book.pk}` or `{kwargs[key]}` stand for arguments of the function.
        timeout: seconds to wait at most; None for no limit.
        ttl: seconds of lease; it is renewed.
        label: free text, shown to people who look at the line.
        locks: the alias in INTERLOCK.

    Raises:
        InvalidArgument: the name mentions what the function has no argument for, or the function is a generator.
        LockTimeout: (when called) somebody else held the lock all the time; the function did not run.
        LockLost: (when called) the lease ended while it ran.
    """
    if not isinstance(name, str) or not name:
        raise InvalidArgument('occupies() needs the name of a lock, as in @occupies("report:{date}")')

    def decorate(function: F) -> F:
        name_for = _namer(name, function)

        def occupation(args: Any, kwargs: Any) -> Occupation[None]:
            using = [each for each in connections if connections[each].in_atomic_block]
            return Occupation([name_for(args, kwargs)], (), _nothing, timeout, locks, using, ttl=ttl, label=label)

        if iscoroutinefunction(function):

            @functools.wraps(function)
            async def in_task(*args: Any, **kwargs: Any) -> Any:
                async with occupation(args, kwargs):
                    return await function(*args, **kwargs)

            return in_task  # type: ignore[return-value]

        @functools.wraps(function)
        def in_thread(*args: Any, **kwargs: Any) -> Any:
            with occupation(args, kwargs):
                return function(*args, **kwargs)

        return in_thread  # type: ignore[return-value]

    return decorate


def _nothing(read: list[Any]) -> None:
    return None


def _namer(name: str, function: Callable[..., Any]) -> Callable[[Any, Any], str]:
    """Return what makes the lock's name of a call's arguments."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidArgument("occupies() can't hold a lock while a generator is being read; use `with` inside it")
    try:
        wanted = {
            field.split(".")[0].split("[")[0] for _, field, _, _ in Formatter().parse(name) if field is not None
        }
    except ValueError as error:
        raise InvalidArgument(f"{name!r} is no name with arguments: {error}; double a brace that is meant") from error
    # What Django's method_decorator gives is a partial that hides `self`, and says that it wraps the method with it.
    signature = inspect.signature(function, follow_wrapped=not isinstance(function, functools.partial))
    parameters = signature.parameters.values()
    swallows = any(each.kind is each.VAR_KEYWORD for each in parameters)
    missing = sorted(wanted - set(signature.parameters))
    if missing and (not swallows or not missing[0].isidentifier()):
        raise InvalidArgument(
            f"the lock's name {name!r} mentions {{{missing[0]}}}, but {getattr(function, '__name__', function)} has "
            f"the arguments: {', '.join(signature.parameters) or 'none'}"
        )

    def name_for(args: Any, kwargs: Any) -> str:
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
