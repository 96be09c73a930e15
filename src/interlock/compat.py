"""A drop-in for filelock while a project moves: `from interlock.compat import FileLock`.

It takes the same flock(2) on the same file, so old and new programs exclude each other, and portalocker too.
What interlock brings is not in it: no line between processes, no fences, no list of holders.
"""

import os
import threading
from types import SimpleNamespace, TracebackType
from typing import Any

from interlock.client.connect import connect
from interlock.core.errors import InvalidArgument, LockTimeout, NotHeld, StoreError
from interlock.runtime import _threads as rt
from interlock.runtime import clock
from interlock.runtime.process import checked_pid

__all__ = ["FileLock"]

NO_LIMIT = -1


class FileLock:
    """filelock's FileLock, on the same lock of the operating system; the holder may acquire it again.

    Args:
        lock_file: the path of the file; it is made, and never removed.
        timeout: seconds to wait at most; -1 for no limit.
        mode: permissions of the file if it is made.
        thread_local: True: each thread acquires for itself; False: the threads that share the object are one holder.
        blocking: False: one try.
        poll_interval: seconds between two looks, since the holder may be a program that does not notify.
    """

    def __init__(
        self,
        lock_file: "str | os.PathLike[str]",
        timeout: float = NO_LIMIT,
        mode: int = 0o644,
        thread_local: bool = True,
        *,
        blocking: bool = True,
        poll_interval: float = 0.05,
    ) -> None:
        self.lock_file = os.fspath(lock_file)
        self.timeout = timeout
        self.blocking = blocking
        self.poll_interval = poll_interval
        self._mode = mode
        # What the thread, or all of them, has of it once it was acquired: the count, the descriptor of the file, the
        # pid of the process that opened it, and the grant that keeps out the other threads.
        self._hold: Any = threading.local() if thread_local else SimpleNamespace()
        self._here = connect("memory://interlock-compat").lock(os.path.realpath(self.lock_file)[-1000:])

    @property
    def is_locked(self) -> bool:
        """True if the calling thread holds it (with `thread_local=False`: if this object does)."""
        return self.lock_counter > 0

    @property
    def lock_counter(self) -> int:
        """How often it was acquired and not released."""
        return int(self._hold.count) if getattr(self._hold, "pid", None) == checked_pid() else 0

    def acquire(
        self, timeout: float | None = None, poll_interval: float | None = None, *, blocking: bool | None = None
    ) -> "_Acquired":
        """Acquire it, or count once more; the result is a context manager that releases once.

        Args:
            timeout, poll_interval, blocking: as those of the lock, which are taken where these are None.

        Raises:
            LockTimeout: the time is over; a `TimeoutError`, as filelock's `Timeout`.
            StoreError: the file can't be opened or locked.
        """
        timeout = self.timeout if timeout is None else timeout
        pause = self.poll_interval if poll_interval is None else poll_interval
        if not (self.blocking if blocking is None else blocking):
            timeout = 0
        if pause <= 0:
            raise InvalidArgument(f"poll_interval is a number of seconds above 0, not {pause!r}")
        if not self.lock_counter:
            self._acquire(None if timeout < 0 else timeout, pause)
        self._hold.count += 1
        return _Acquired(self)

    def release(self, force: bool = False) -> None:
        """Release it once; it is free when it was released as often as it was acquired.

        Args:
            force: free it now.

        Raises:
            NotHeld: the calling thread does not hold it, and `force` is False.
        """
        if not self.lock_counter:
            if force:
                return
            raise NotHeld(f"the lock of {self.lock_file!r} is not held by this thread")
        self._hold.count = 0 if force else self._hold.count - 1
        if not self._hold.count:
            import fcntl

            try:
                fcntl.flock(self._hold.descriptor, fcntl.LOCK_UN)  # also where a forked child has the descriptor, too
            finally:
                os.close(self._hold.descriptor)
                self._hold.grant.release()

    def _acquire(self, timeout: float | None, pause: float) -> None:
        """Wait for the threads of this process in their order, then for other processes."""
        # The lock stays that of the parent of this process.
        if getattr(self._hold, "count", 0) and self._hold.pid != checked_pid():
            os.close(self._hold.descriptor)
            self._hold.count = 0
        deadline = None if timeout is None else clock.now() + timeout
        grant = self._here.acquire(timeout=timeout)
        if grant is not None:
            try:
                while True:
                    descriptor = _locked(self.lock_file, self._mode)
                    if descriptor is not None:
                        self._hold.__dict__.update(descriptor=descriptor, grant=grant, count=0, pid=checked_pid())
                        return
                    left = pause if deadline is None else min(pause, deadline - clock.now())
                    if left <= 0:
                        break
                    rt.sleep(left)
            except BaseException:
                grant.release()
                raise
            grant.release()
        raise LockTimeout(
            f"the lock of {self.lock_file!r} was not obtained within {timeout:g} s: another caller holds it; wait "
            f"longer (timeout=), or find the holder with `fuser {self.lock_file}`",
            name=self.lock_file,
            timeout=timeout,
        )

    def __enter__(self) -> "FileLock":
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class _Acquired:
    """What `acquire` returns: its `with` releases once."""

    def __init__(self, lock: FileLock) -> None:
        self.lock = lock

    def __enter__(self) -> FileLock:
        return self.lock

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.lock.release()


def _locked(path: str, mode: int) -> int | None:
    """Open a file and lock it; None if another program has it."""
    try:
        import fcntl
    except ImportError as error:
        raise StoreError("there is no flock on this system: use filelock's own class here") from error
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, mode)
    except OSError as error:
        raise StoreError(f"{path} can't be opened: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass  # another program has it, or has removed the file, and the next ones will lock a new file
    except OSError as error:
        os.close(descriptor)
        raise StoreError(f"{path} can't be locked ({error.strerror}): choose a local disk") from error
    os.close(descriptor)
    return None
