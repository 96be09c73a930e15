"""Facts about this process, and hooks for its forks and its end."""

import os
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from os import fstat
from stat import S_ISSOCK
from typing import TYPE_CHECKING, Generic, TypeVar

from interlock.core.claims import shown_text

if TYPE_CHECKING:
    from socket import socket

T = TypeVar("T")
SO_COOKIE, COOKIE_SIZE = 57, 8  # of Linux 4.12 or newer (asm-generic/socket.h); Python has no name for this option


def _node() -> str:
    if hasattr(os, "uname"):
        return os.uname().nodename
    from socket import gethostname  # loaded late, because it is slow to load

    return gethostname()


HOST = shown_text(_node())
_pid = os.getpid()
_in_child: list[Callable[[], object]] = []


def in_forked_child(function: Callable[[], object]) -> None:
    """Call `function` in each forked child."""
    _in_child.append(function)


def each_in_forked_child(registry: Iterable[T], function: Callable[[T], object]) -> None:
    """Call `function` in each forked child with each object of a registry."""
    in_forked_child(lambda: [function(each) for each in registry])


def around_forks(**functions: Callable[[], object]) -> None:
    """Call `os.register_at_fork` on systems with forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**functions)


def pid() -> int:
    """Return this process's id, without a system call."""
    return _pid


def checked_pid() -> int:
    """Return this process's id from the system.

    uWSGI and C code fork without Python's hooks: then this call runs the hooks of a fork.
    """
    if os.getpid() != _pid:
        _forked()
    return _pid


def running_loop() -> object:
    """Return the running event loop of the calling thread; None if none runs."""
    asyncio = sys.modules.get("asyncio")
    return None if asyncio is None else asyncio._get_running_loop()  # it does not raise, unlike the public function


def _forked() -> None:
    global _pid
    _pid = os.getpid()
    for function in _in_child:
        function()


around_forks(after_in_child=_forked)


@lru_cache
def sockets_are_descriptors() -> bool:
    """Return False on Windows, where the number of a socket is a handle, and no descriptor of the C library.

    There `os.fstat`, `os.dup` and `os.close` fail with such a number, or use the file that has the same number.
    """
    from socket import socket  # slow to load, and already loaded with any connection

    try:
        probe = socket()
    except OSError:  # no descriptor is left, or only Unix sockets are allowed
        return os.name == "posix"
    with probe:
        try:
            return S_ISSOCK(fstat(probe.fileno()).st_mode)
        except OSError:
            return False


@contextmanager
def _socket_of(fd: int) -> "Iterator[socket]":
    """Use a socket by its number, and leave it open.

    Raises:
        OSError: it is no open socket.
    """
    from socket import socket

    same = socket(fileno=fd)
    try:
        yield same
    finally:
        same.detach()


def _inode_of(fd: int) -> tuple[int, int]:
    found = fstat(fd)
    return found.st_dev, found.st_ino


def _identity_of(fd: int, owner: "socket | None") -> Callable[[], object]:
    """Return a function that returns the identity of the file behind a descriptor, or raises OSError.

    Linux gives each socket a cookie, which no other socket gets later; it takes less than half the time of `fstat`.
    """
    if owner is not None and sys.platform == "linux":
        from socket import SOL_SOCKET  # already loaded with the socket

        cookie = SOL_SOCKET, SO_COOKIE, COOKIE_SIZE
        try:
            if len(owner.getsockopt(*cookie)) == COOKIE_SIZE:  # on some processors the number is another option
                return partial(owner.getsockopt, *cookie)
        except OSError:  # an older kernel, or another system that runs programs for Linux
            pass
    return partial(_inode_of, fd)


class OwnedDescriptor:
    """The identity of the file behind a descriptor's number.

    A program that becomes a daemon closes foreign descriptors, and their numbers become other files: then this
    library neither writes to nor closes them.  On Windows no program can do so with the handles of sockets.

    Args:
        fd: the descriptor's number.
        owner: the socket that would close it; it is detached if the file is no longer ours.
    """

    __slots__ = ("_address", "_fd", "_found", "_identity", "_owner")

    def __init__(self, fd: int, owner: "socket | None" = None) -> None:
        self._fd = fd
        self._owner = owner
        self._identity: Callable[[], object] | None = None
        self._found: object = None
        self._address: object = None
        if sockets_are_descriptors():
            self._identity = _identity_of(fd, owner)
            self._found = self._identity()
        else:
            with _socket_of(fd) as same:
                self._address = same.getsockname()

    def is_ours(self) -> bool:
        """Return True if it is still open, and still the same file."""
        if self._identity is None:  # nobody but its owner closes a handle
            return self._owner is None or self._owner.fileno() == self._fd
        try:
            ours = self._identity() == self._found
        except OSError:
            ours = False
        if not ours and self._owner is not None:
            self._owner.detach()
        return ours

    def check(self) -> None:
        """Check that it is still the same file.

        Raises:
            ConnectionResetError: it is another file.
        """
        if not self.is_ours():
            raise ConnectionResetError("The program closed a file descriptor that interlock owns.")

    def shut_down(self) -> None:
        """End a connection from any thread, and wake its waiting thread; its owner closes it.

        Raises:
            OSError: the connection has ended.
        """
        from socket import SHUT_RDWR, socket

        if self._identity is None:
            with _socket_of(self._fd) as same:
                if same.getsockname() == self._address:  # otherwise its library has closed it
                    same.shutdown(SHUT_RDWR)
        elif self.is_ours():
            with socket(fileno=os.dup(self._fd)) as copy:  # uvloop's own socket object cannot be shut down
                copy.shutdown(SHUT_RDWR)


class WeakRegistry(Generic[T]):
    """Objects that are found while they live; any thread may add one, unlike to a WeakSet.

    No Python code runs when one of them dies, because Python would swallow an interrupt in it.
    """

    def __init__(self) -> None:
        self._found: dict[weakref.ref[T], None] = {}

    def add(self, one: T) -> None:
        """Add an object."""
        self._found[weakref.ref(one, self._found.pop)] = None

    def __iter__(self) -> Iterator[T]:
        """Iterate over the living objects."""
        found = (reference() for reference in list(self._found))
        return (one for one in found if one is not None)


def fresh_id() -> str:
    """Return a unique claim id that is never reused.

    The operating system is asked each time: what a process has in its memory is cloned with it.
    """
    return os.urandom(16).hex()
