"""`@occupies("report:{date}")`: a function that runs while a lock is held whose name its arguments make."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from asgiref.sync import iscoroutinefunction
from django.db import connections

from interlock.core.errors import InvalidArgument
from interlock.core.functions import checked_kind_of, name_of_arguments, see_it_finished
from interlock.django.conf import DEFAULT
from interlock.django.occupation import Occupation

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
    under ATOMIC_REQUESTS; but a coroutine function can't be called in one.  A thread may enter again what it holds.

    Args:
        name: of the lock; `{date}`, `{book.pk}` or `{kwargs[key]}` stand for arguments of the function.
        timeout: seconds to wait at most; None for no limit.
        ttl: seconds of lease; it is renewed.
        label: free text, shown to people who look at the line.
        locks: the alias in INTERLOCK.

    Raises:
        InvalidArgument: the name mentions what the function has no argument for, or the function is a generator.
            When called: it returned a coroutine or a generator, which has not run yet; or it is a coroutine function,
            and the thread that waits for it is in a transaction.
        LockTimeout: (when called) somebody else held the lock all the time; the function did not run.
        LockLost: (when called) the lease ended while it ran.
    """
    if not isinstance(name, str) or not name:
        raise InvalidArgument('occupies() needs the name of a lock, as in @occupies("report:{date}")')

    def decorate(function: F) -> F:
        name_for = name_of_arguments(name, function, "occupies")

        def occupation(using: list[str], args: object, kwargs: object) -> Occupation[bool]:
            return Occupation([name_for(args, kwargs)], (), bool, timeout, locks, using, ttl=ttl, label=label)

        if iscoroutinefunction(function) or checked_kind_of(function) == "coroutine function":

            @functools.wraps(function)
            async def in_task(*args: object, **kwargs: object) -> Any:
                # A thread with a loop knows nothing of transactions; on entering, that of the database is asked.
                async with occupation(list(connections), args, kwargs):
                    result = await function(*args, **kwargs)
                    see_it_finished(result, function)
                    return result

            return in_task  # type: ignore[return-value]

        @functools.wraps(function)
        def in_thread(*args: object, **kwargs: object) -> Any:
            using = [each for each in connections if connections[each].in_atomic_block]
            with occupation(using, args, kwargs):
                result = function(*args, **kwargs)
                see_it_finished(result, function)
                return result

        return in_thread  # type: ignore[return-value]

    return decorate
