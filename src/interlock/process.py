"""Which process this is; a forked child is another one."""

import os

HOST = os.uname().nodename
_pid = os.getpid()


def pid() -> int:
    """Return this process's id, without a system call."""
    return _pid


def _after_fork() -> None:
    global _pid
    _pid = os.getpid()


os.register_at_fork(after_in_child=_after_fork)
