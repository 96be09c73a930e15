"""Which process this is; a forked child is another one; and what is to be found when it forks or ends."""

import os
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from os import fstat
from os.path import samestat
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from interlock.core.claims import shown_text

if TYPE_CHECKING:
    from socket import socket

T = TypeVar("T")


def _node() -> str:
    if hasattr(os, "uname"):
        return os.uname().nodename
    from socket import gethostname  # only where it is needed: it is slow to load

    return gethostname()


HOST = shown_text(_node())
_pid = os.getpid()
_in_child: list[Callable[[], object]] = []


def in_forked_child(function: Callable[[], object]) -> None:
    """Let `function` be called in each child that is forked."""
    _in_child.append(function)


def each_in_forked_child(registry: Iterable[T], function: Callable[[T], object]) -> None:
    """Let `function` be called in each forked child, with each object that is in a registry by then."""
    in_forked_child(lambda: [function(each) for each in registry])


def around_forks(**functions: Callable[[], object]) -> None:
    """As `os.register_at_fork`, where there are forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**functions)


def pid() -> int:
    """Return this process's id, without a system call."""
    return _pid


def checked_pid() -> int:
    """Return this process's id, as the system says.

    uWSGI and C code fork without telling Python: then what a fork is to do is done here.
    """
    if os.getpid() != _pid:
        _forked()
    return _pid


def running_loop() -> Any:
    """Return the event loop that runs in the calling thread; None if none does."""
    asyncio: Any = sys.modules.get("asyncio")
    return None if asyncio is None else asyncio._get_running_loop()  # it does not raise, as the public one


def _forked() -> None:
    global _pid
    _pid = os.getpid()
    for function in _in_child:
        function()


around_forks(after_in_child=_forked)


class OwnedDescriptor:
    """Which file the number of a descriptor means.

    A program that becomes a daemon closes descriptors that are not its own, and their numbers become other files:
    what is no longer ours is neither written to nor closed.

    Args:
        fd: the number.
        owner: the socket that would close it; it lets go of what is no longer ours.
    """

    __slots__ = ("_fd", "_found", "_owner")

    def __init__(self, fd: int, owner: "socket | None" = None) -> None:
        self._fd = fd
        self._found = fstat(fd)
        self._owner = owner

    def is_ours(self) -> bool:
        """Tell whether it is still open, and means the same file."""
        try:
            ours = samestat(self._found, fstat(self._fd))
        except OSError:
            ours = False
        if not ours and self._owner is not None:
            self._owner.detach()
        return ours

    def check(self) -> None:
        """See that it is ours.

        Raises:
            ConnectionResetError: it is not.
        """
        if not self.is_ours():
            raise ConnectionResetError("the program has closed its descriptor")

    def shut_down(self) -> None:
        """End a connection from any thread, and wake a thread that waits at it; its owner closes it.

        Raises:
            OSError: it has ended.
        """
        from socket import SHUT_RDWR, socket  # slow to load, and loaded where there are connections

        if self.is_ours():
            with socket(fileno=os.dup(self._fd)) as copy:  # what uvloop has for a socket can't be shut down
                copy.shutdown(SHUT_RDWR)


class WeakRegistry(Generic[T]):
    """Objects that are found as long as they live; any thread may add one at any moment, unlike to a WeakSet.

    No code in Python is called when one of them dies: Python would swallow an interrupt that comes in that call.
    """

    def __init__(self) -> None:
        self._found: dict[weakref.ref[T], None] = {}

    def add(self, one: T) -> None:
        """Find `one` from now on."""
        self._found[weakref.ref(one, self._found.pop)] = None

    def __iter__(self) -> Iterator[T]:
        """Iterate over those that live."""
        found = (reference() for reference in list(self._found))
        return (one for one in found if one is not None)


def fresh_id() -> str:
    """Return a claim id that was never used and never will be.

    The operating system is asked each time: what a process has in its memory is cloned with it.
    """
    return os.urandom(16).hex()
