"""A plugin for pytest that hides what only POSIX systems have, as Python on Windows does not have it.

The standard library and others' packages are loaded before, as they were made for the system that is here.
"""

import asyncio
import importlib
import os
import select
import selectors
import signal
import socket
import sys
import sysconfig
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
MADE_FOR_HERE = (
    "ssl", "subprocess", "tempfile", "shutil", "multiprocessing", "concurrent.futures", "logging.handlers", "getpass",
    "click", "rich.console", "rich.table", "redis.asyncio", "valkey.asyncio",
)  # fmt: skip
"""What looks at the platform when it is loaded, and was installed for this one."""


def pair(*_: object) -> tuple[socket.socket, socket.socket]:
    """Return two sockets that are connected, as Windows makes them: by the loopback interface."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _address = server.accept()
    return one, other


def hide() -> None:
    """Hide them, in this process and for good."""
    for name in MADE_FOR_HERE:
        importlib.import_module(name)
    sysconfig.get_config_vars()  # it reads a file that is named after the platform
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    for module, names in NAMES.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    selectors.DefaultSelector = selectors.SelectSelector  # type: ignore[misc, assignment]
    socket.socketpair = pair  # type: ignore[assignment]
    asyncio.ProactorEventLoop = type("ProactorEventLoop", (), {})  # type: ignore[attr-defined]
    sys.platform = "win32"


def pytest_configure() -> None:
    """Hide them once pytest itself is loaded."""
    assert "interlock" not in sys.modules, "nothing may load it before"
    hide()
