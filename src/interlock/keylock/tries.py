"""Whether a command was sent more than once: clients try again by themselves, and do not tell.

redis-py sends up to ten times by default.  A release whose first reply was lost is then answered "nothing there",
which would look as if the lock had been lost.  The client's own retries stay as its user wants them: here they are
only counted, by looking where its methods begin a try.
"""

from typing import Any
from weakref import WeakKeyDictionary

from interlock._redis.libraries import is_cluster

ONE_TRY = "_send_command_parse_response"
ONE_TRY_OF_A_CLUSTER = "_execute_command"


class Tries:
    """What is known of one question to the server.

    Attributes:
        begun: how many times a client began to send the command that is asked now.
        again: True if some command of it was sent again after a reply that did not come.
    """

    __slots__ = ("again", "begun")

    def __init__(self) -> None:
        self.begun = 0
        self.again = False

    def counted(self, client: Any) -> Any:
        """Return what behaves as `client` does, and counts here; the client itself if it hides no tries."""
        self.begun = 0
        kind = _counting.get(type(client)) or _counting_kind_of(client)
        if kind is None:
            return client
        view = object.__new__(kind)
        view.__dict__ = client.__dict__  # everything that it has, and what becomes of that
        view._interlock_client, view._interlock_tries = client, self
        return view

    def note(self) -> None:
        """Note what became of the command that was asked."""
        self.again = self.again or self.begun > 1


_counting: "WeakKeyDictionary[type, Any]" = WeakKeyDictionary()
"""The kind of client that counts, by the one that does not."""


def _counting_kind_of(client: Any) -> Any:
    kind: Any = type(client)
    name = ONE_TRY_OF_A_CLUSTER if is_cluster(client) else ONE_TRY
    if not callable(getattr(kind, name, None)) or not hasattr(client, "__dict__"):
        return None

    def begin_and_count(self: Any, *args: Any, **options: Any) -> Any:
        self._interlock_tries.begun += 1
        return getattr(super(made, self), name)(*args, **options)

    def stay(self: Any) -> None:
        """Close nothing: the connections are the client's."""

    body: dict[str, Any] = {slot: _theirs(slot) for base in kind.__mro__ for slot in vars(base).get("__slots__", ())}
    body |= {name: begin_and_count, "__del__": stay, "__module__": kind.__module__}
    body["__slots__"] = ("_interlock_client", "_interlock_tries")
    _counting[kind] = made = type(kind)(kind.__name__, (kind,), body)
    return made


def _theirs(slot: str) -> property:
    """Return what reads and writes a slot of the client itself."""

    def read(self: Any) -> Any:
        return getattr(self._interlock_client, slot)

    def write(self: Any, value: Any) -> None:
        setattr(self._interlock_client, slot, value)

    return property(read, write)
