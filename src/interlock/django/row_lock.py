"""`occupy`: the lock of a row, for several steps that must not interleave with those of another caller."""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from operator import itemgetter
from types import TracebackType
from typing import Any, ClassVar, Generic, TypeVar, Unpack, overload

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.core.exceptions import ObjectDoesNotExist
from django.db import connections, models
from django.http import Http404

from interlock.api._sync.locks import RunOptions
from interlock.client.messages import time_is_over
from interlock.core.claims import shown_text
from interlock.core.errors import InvalidArgument
from interlock.core.functions import checked_kind_of, name_of_arguments, refuse_awaitable
from interlock.django.commit_checks import Relied, no_longer, rely_on
from interlock.django.conf import DEFAULT
from interlock.django.configured import alocks, locks
from interlock.django.row_names import RowName, row_of
from interlock.django.transactions import check_transaction, in_transaction, kept_until_the_end, watch_commits

M = TypeVar("M", bound=models.Model)
R = TypeVar("R")


class Occupation(Generic[R]):
    """Locks that are held during a `with` block, and until the transaction around it has ended.

    Made by `occupy` and `occupies`; used once.

    Args:
        names: the names of the locks; empty for the locks of the rows.
        rows: the rows to read when the locks are held.
        answer: makes the value that `with` yields from the rows.
        timeout: the most seconds to wait; None for no limit.
        locks: the alias in INTERLOCK.
        using: the databases; the locks are held until their open transactions have ended.
        options: ttl and label, as for `Locks.lock`.

    Attributes:
        grant: the grant, or the grants of several locks, while it is held.
    """

    def __init__(
        self,
        names: Sequence[str],
        rows: Sequence[RowName[models.Model]],
        answer: Callable[[list[models.Model]], R],
        timeout: float | None,
        locks: str,
        using: Sequence[str],
        **options: Unpack[RunOptions],
    ) -> None:
        self.grant: Any = None
        self._relied: Relied | None = None
        self._names = tuple(names)
        self._rows = rows
        self._answer = answer
        self._timeout = timeout
        self._locks = locks
        self._using = tuple(dict.fromkeys(using))
        self._options = options

    def __enter__(self) -> R:
        try:
            for using in self._using:
                check_transaction(using)
            self._find_names()
            self.grant = self._lock(locks[self._locks]).acquire(timeout=self._timeout)
            relied = self._take_note()
            answer = self._read()
            rely_on(relied)
            return answer
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.grant is None:
            return
        no_longer(self._relied)
        if not kept_until_the_end(self.grant, self._using, self._locks):
            self.grant.__exit__(kind, error, trace)
        elif error is None and self.grant.lost and not self.grant.inherited:
            raise self.grant._loss()

    async def __aenter__(self) -> R:
        await sync_to_async(self._begin_in_loop)()
        try:
            self.grant = await self._lock(alocks[self._locks]).acquire(timeout=self._timeout)
            relied = self._take_note()
            await self.grant.__aenter__()
            answer = await sync_to_async(self._read)()
            rely_on(relied)
            return answer
        except BaseException as error:
            if self.grant is not None:
                await self.__aexit__(type(error), error, error.__traceback__)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        no_longer(self._relied)
        await self.grant.__aexit__(kind, error, trace)

    def _begin_in_loop(self) -> None:
        """Begin for tasks, in the thread that runs their database code."""
        for using in self._using:
            if in_transaction(using):
                raise InvalidArgument(
                    f"A task cannot hold a lock until the end of the transaction on {using!r}. "
                    f"Use `with` or @occupies in the function that holds the transaction."
                )
        self._find_names()

    def _find_names(self) -> None:
        self._names = tuple(dict.fromkeys(self._names or [row.name(self._locks) for row in self._rows]))

    def _lock(self, made: Any) -> Any:
        parts = [made.rlock(name, **self._options) for name in self._names]
        return parts[0] if len(parts) == 1 else made.all(*parts)

    def _take_note(self) -> Relied:
        """Rely on the grant from now on."""
        if self.grant is None:
            error = time_is_over(", ".join(self._names), self._timeout)
            vars(error)["named"] = not self._rows  # a name of the caller, which a response may show
            raise error
        self._relied = Relied(self._locks, self.grant)
        return self._relied

    def _read(self) -> R:
        """Read the rows while the locks are held, in the thread whose transactions will check the locks."""
        watch_commits()
        return self._answer([row.read() for row in self._rows])


@overload
def occupy(
    row: M,
    /,
    *,
    timeout: float | None = None,
    ttl: float | None = None,
    label: str | None = None,
    locks: str = DEFAULT,
) -> Occupation[M]: ...
@overload
def occupy(
    model: type[M], /, *, pk: object, timeout: float | None = None, ttl: float | None = None,
    label: str | None = None, locks: str = DEFAULT,
) -> Occupation[M]: ...  # fmt: skip
@overload
def occupy(
    *rows: models.Model, timeout: float | None = None, ttl: float | None = None, label: str | None = None,
    locks: str = DEFAULT,
) -> Occupation[tuple[Any, ...]]: ...  # fmt: skip


def occupy(
    *rows: Any,
    pk: object = None,
    timeout: float | None = None,
    ttl: float | None = None,
    label: str | None = None,
    locks: str = DEFAULT,
) -> Occupation[Any]:
    """Take the lock of a row: `with occupy(book, timeout=3) as book:`, or `async with`.

    It takes the lock of the row, and then reads the row again: an instance is refreshed in place, so its unsaved
    changes are lost.  In a transaction the lock is held until the commit or rollback.  The lock is re-entrant: a
    thread may occupy a row again that it occupies.

    Args:
        rows: an instance; or a model, with `pk`; or several instances, which are occupied in one global order.
        pk: the primary key, with a model.
        timeout: the most seconds to wait; None for no limit.
        ttl: seconds of lease, which is renewed.
        label: free text, shown in lists of claims.
        locks: the alias in INTERLOCK.

    Returns:
        A context manager for one use; it yields the instance, or a tuple of several in the order given.

    Raises:
        InvalidArgument: an instance was never saved, or the arguments don't fit together.
        LockTimeout: (on entering) another caller occupied the row until the time-out.
        LockLost: (on leaving, or at the commit of a transaction in or around the block) the lock was lost;
            the transaction is rolled back.
        Model.DoesNotExist: (on entering) the row does not exist any more.
        BrokenTransaction: (on entering) the transaction can only be rolled back.
    """
    if not rows:
        raise InvalidArgument("occupy() needs an instance, or a model and a pk.")
    if isinstance(rows[0], type):
        if len(rows) != 1 or not issubclass(rows[0], models.Model) or pk is None:
            raise InvalidArgument("occupy() accepts instances, or one model with its pk, such as occupy(Book, pk=1).")
        found = [RowName(rows[0], pk)]
    elif pk is not None:
        raise InvalidArgument("occupy() accepts a pk only with a model. Omit pk for an instance.")
    else:
        found = [row_of(each) for each in rows]
    answer = itemgetter(0) if len(found) == 1 else tuple
    return Occupation((), found, answer, timeout, locks, [row.using for row in found], ttl=ttl, label=label)


class OccupiesObject:
    """The base of view mixins that change an object only while they occupy it.

    Attributes:
        occupy_timeout: seconds to wait for the lock; 0 for one try.
        occupy_ttl: the lease in seconds; None: the default of the locks.
    """

    occupy_timeout: ClassVar[float | None] = 3.0
    occupy_ttl: ClassVar[float | None] = None
    request: Any
    get_object: Any

    def occupy(self, instance: Any) -> AbstractContextManager[object]:
        """Return the context manager that occupies an object; override it to occupy another object, or more."""
        label = shown_text(f"{self.request.method} {self.request.path}")
        return occupy(instance, timeout=self.occupy_timeout, ttl=self.occupy_ttl, label=label)

    @contextmanager
    def occupied(self) -> Iterator[None]:
        """Occupy the object of the request, also for your own actions; `get_object` reads it again in the block."""
        # Before the lock: a user without permission, or with a wrong URL, gets the error without waiting.
        row_lock = self.occupy(self.get_object())
        with ExitStack() as stack:
            try:
                stack.enter_context(row_lock)
            except ObjectDoesNotExist:
                raise Http404 from None
            yield


F = TypeVar("F", bound=Callable[..., Any])


def occupies(
    name: str,
    *,
    timeout: float | None = None,
    ttl: float | None = None,
    label: str | None = None,
    locks: str = DEFAULT,
) -> Callable[[F], F]:
    """Decorate a function, a view (sync or async) or a Celery task, so that it runs while a lock is held.

    In a transaction the lock is held until the commit or rollback, so the decorator works on a view under
    ATOMIC_REQUESTS; but a coroutine function can't be called in a transaction.  The lock is re-entrant.

    Args:
        name: the name of the lock; `{date}`, `{book.pk}` or `{kwargs[key]}` are replaced by arguments of the
            function.
        timeout: the most seconds to wait; None for no limit.
        ttl: seconds of lease, which is renewed.
        label: free text, shown in lists of claims.
        locks: the alias in INTERLOCK.

    Raises:
        InvalidArgument: the name refers to an argument that the function does not have, or the function is a
            generator. When called: it returned a coroutine or a generator, which has not run yet; or it is a
            coroutine function, and the thread that waits for it is in a transaction.
        LockTimeout: (when called) another caller held the lock until the time-out; the function did not run.
        LockLost: (when called) the lock was lost while the function ran.
    """
    if not isinstance(name, str) or not name:
        raise InvalidArgument('occupies() needs the name of a lock, such as @occupies("report:{date}").')

    def decorate(function: F) -> F:
        name_for = name_of_arguments(name, function, "occupies")

        def row_lock(using: list[str], args: object, kwargs: object) -> Occupation[bool]:
            return Occupation([name_for(args, kwargs)], (), bool, timeout, locks, using, ttl=ttl, label=label)

        if iscoroutinefunction(function) or checked_kind_of(function) == "coroutine function":

            @functools.wraps(function)
            async def in_task(*args: object, **kwargs: object) -> object:
                # The thread of the event loop has no transactions; entering checks them in the database's thread.
                async with row_lock(list(connections), args, kwargs):
                    result = await function(*args, **kwargs)
                    refuse_awaitable(result, function)
                    return result

            return in_task  # type: ignore[return-value]

        @functools.wraps(function)
        def in_thread(*args: object, **kwargs: object) -> object:
            using = [each for each in connections if connections[each].in_atomic_block]
            with row_lock(using, args, kwargs):
                result = function(*args, **kwargs)
                refuse_awaitable(result, function)
                return result

        return in_thread  # type: ignore[return-value]

    return decorate
