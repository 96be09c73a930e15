"""One try on Redis: what both colours share of the client, of its connection and of what is said on it."""

from collections.abc import Sequence
from typing import Any

from interlock._redis.libraries import is_cluster
from interlock.core.errors import InvalidArgument, StoreError
from interlock.optimistic.redis.libraries import Library, checked_library
from interlock.optimistic.redis.steps import NO_KEY, ConnectionFailed, Conversation, text
from interlock.optimistic.tries import Tries


class BaseTransactionConnection:
    """One connection of the client's, for the time of one try.

    Args:
        library: the client's library.
        callbacks: shape replies as the library does.

    Attributes:
        broken: True once nothing more may be said on it.
    """

    def __init__(self, library: Library, callbacks: Any) -> None:
        self._library = library
        self.callbacks = callbacks
        self.broken = False

    def _check(self) -> None:
        if self.broken:
            raise ConnectionFailed("the connection failed earlier in this try; nothing was changed")


def failed(error: Exception) -> ConnectionFailed:
    """Return the error for a connection that failed by `error`."""
    return ConnectionFailed(f"the connection failed: {error!r}; nothing was changed")


class BaseRedisBackend:
    """A client of the Redis libraries as a backend.

    Args:
        client: a client, also of Sentinel or a cluster.

    Raises:
        InvalidArgument: it is none, or one of the other colour.
    """

    _tasks = False

    def __init__(self, client: Any) -> None:
        self.library = checked_library(client, tasks=self._tasks)
        self.client = client
        self.cluster = is_cluster(client)

    def _check_slot(self, slot: int | None) -> None:
        if self.cluster and slot is None:
            raise InvalidArgument(NO_KEY)


def unreachable(error: Exception) -> StoreError:
    """Return the error for a server that can't be connected to because of `error`."""
    return StoreError(f"the server can't be reached: {error!r}; nothing was changed")


class BaseRedisAttempt:
    """One try: what is watched and queued, and the connection to say it on.

    Args:
        backend: the client.
        tries: which try it is, and how long an answer may take.
    """

    _transaction_type: Any
    _connection: Any

    def __init__(self, backend: Any, tries: Tries) -> None:
        self._backend = backend
        self._tries = tries
        self._conversation = Conversation(self, backend.library, backend.client, backend.cluster)
        self._connection = None
        self.transaction = self._transaction_type(self, backend, tries.number, self._conversation.writes)

    @property
    def keys(self) -> Sequence[str]:
        """What is watched, for messages."""
        return [text(key) for key in self._conversation.watched]

    @property
    def _callbacks(self) -> Any:
        return {} if self._connection is None else self._connection.callbacks

    def _before_commit(self) -> None:
        """End what the function may do, and see whether a commit still has a sense."""
        self.transaction.end()
        self._conversation.check(self._connection is not None and self._connection.broken)

    def _committed(self, replies: Any) -> bool:
        """Take the answers to the commit; return what that answers."""
        return replies is not None and self._conversation.settle(replies, self._callbacks)
