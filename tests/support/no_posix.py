"""A pytest plugin that hides POSIX-only parts of Python, as on Windows, where sockets are no descriptors either.

The standard library and other packages are imported before, since they are installed for the present system.
"""

import asyncio
import errno
import importlib
import os
import select
import selectors
import signal
import socket
import stat
import sys
import sysconfig
from collections.abc import Callable
from types import ModuleType

MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty")
NAMES: dict[ModuleType, tuple[str, ...]] = {
    os: (
        "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "chown", "eventfd", "fchmod", "fchown", "fork",
        "forkpty", "getegid", "geteuid", "getgid", "getpgid", "getpgrp", "getsid", "getuid", "killpg",
        "memfd_create", "mkfifo", "mknod", "pidfd_open", "pipe2", "posix_spawn", "pread",
        "pwrite", "register_at_fork", "sched_getaffinity",
        "sched_yield", "setpgid", "setsid", "statvfs", "sysconf", "tcsetpgrp", "uname", "wait4", "waitid",
    ),
    signal: (
        "SIGALRM", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGQUIT", "SIGSTOP", "SIGTSTP", "SIGUSR1", "SIGUSR2",
        "pthread_kill", "pthread_sigmask", "setitimer", "siginterrupt", "sigwait",
    ),
    socket: ("AF_UNIX", "SO_REUSEPORT", "TCP_USER_TIMEOUT", "send_fds", "recv_fds"),
    selectors: ("PollSelector", "EpollSelector"),
    select: ("poll", "POLLIN", "POLLOUT", "POLLERR", "POLLHUP", "POLLRDHUP", "epoll"),
}  # fmt: skip
OF_DESCRIPTORS = (
    "close", "dup", "dup2", "fdopen", "fstat", "fsync", "get_inheritable", "isatty", "lseek", "read", "set_blocking",
    "set_inheritable", "write",
)  # fmt: skip
"""Functions that fail with the number of a socket, which is a handle on Windows, and no descriptor."""
MADE_FOR_HERE = (
    "ssl", "subprocess", "tempfile", "shutil", "multiprocessing", "concurrent.futures", "logging.handlers", "getpass",
    "click", "rich.console", "rich.table", "redis.asyncio", "valkey.asyncio",
)  # fmt: skip
"""Packages that check the platform when they are imported, and are installed for the present one."""


def pair(*_: object) -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets, made over the loopback interface as on Windows."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _address = server.accept()
    return one, other


def without_sockets(function: Callable[..., object], fstat: Callable[[int], os.stat_result]) -> Callable[..., object]:
    """Return a function on a descriptor that refuses the number of a socket."""

    def checked(fd: int, *args: object, **named: object) -> object:
        try:
            is_socket = stat.S_ISSOCK(fstat(fd).st_mode)
        except OSError:
            is_socket = False  # the function itself reports what is wrong
        if is_socket:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return function(fd, *args, **named)

    return checked


def hide() -> None:
    """Hide the POSIX-only parts in this process, permanently."""
    for name in MADE_FOR_HERE:
        importlib.import_module(name)
    sysconfig.get_config_vars()  # called before: it reads a file whose name contains the platform
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    for module, names in NAMES.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    fstat = os.fstat
    for name in OF_DESCRIPTORS:
        setattr(os, name, without_sockets(getattr(os, name), fstat))
    selectors.DefaultSelector = selectors.SelectSelector  # type: ignore[misc, assignment]
    socket.socketpair = pair  # type: ignore[assignment]
    asyncio.ProactorEventLoop = type("ProactorEventLoop", (), {})  # type: ignore[attr-defined]
    sys.platform = "win32"


def pytest_configure() -> None:
    """Hide the POSIX-only parts after pytest itself is loaded."""
    assert "interlock" not in sys.modules, "nothing may load it before"
    hide()
