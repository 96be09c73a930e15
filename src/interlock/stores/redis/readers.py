"""Which of the waiting threads reads the subscription, for all of them.

One of them reads, and passes on what is for the others; when it has its own message, the next one reads.  So a lone
waiter is woken by the kernel, not by another thread.
"""

import threading
from collections.abc import Callable
from time import monotonic

from interlock.core.queue import Granted
from interlock.runtime.polling import WakePipe

GOODBYE = 1.0  # seconds to wait for whoever reads


class Readers:
    """The waiting threads of one subscription, of which one reads.

    Args:
        listen: (waiter, deadline, pipe) -> None: reads until that waiter was rung or the time is over, and looks
            around when the pipe wakes it.
        close_connection: closes what is read.

    Attributes:
        closed: whether nobody is to read any more.
        hearing: whether the reader passes on a message just now; so it need not be woken.
    """

    def __init__(
        self, listen: "Callable[[ThreadWaiter, float, WakePipe], object]", close_connection: Callable[[], object]
    ) -> None:
        self._listen = listen
        self._close_connection = close_connection
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._reading = threading.RLock()  # re-entrant: a signal handler may acquire while this thread reads
        self._sleepers: dict[int, ThreadWaiter] = {}
        self._reader: ThreadWaiter | None = None
        self._pipe: WakePipe | None = None
        # Re-entrant: a signal handler, or the garbage collector, may release a grant.
        self._waking = threading.RLock()
        self.hearing = False
        self.closed = False

    def sleep(self, waiter: "ThreadWaiter", seconds: float) -> None:
        """Block the calling thread until `waiter` is rung or the time is over."""
        deadline = monotonic() + seconds
        key = id(waiter)
        self._sleepers[key] = waiter
        try:
            while not waiter.rung:
                if self._reading.acquire(blocking=False):
                    self._read(waiter, deadline)
                    return
                left = deadline - monotonic()
                if left <= 0:
                    return
                waiter.lock.acquire(timeout=left)
        finally:
            self._sleepers.pop(key, None)
            if self._reader is None:
                self._next_reader()

    def _read(self, waiter: "ThreadWaiter", deadline: float) -> None:
        """Be the reader; the caller holds `_reading`, which is released.

        A signal handler may wait in the middle of another wait of its thread, which goes on to read after it.
        """
        outer = self._reader
        hearing = self.hearing
        try:
            self._reader = waiter
            self.hearing = False  # an interrupt may have come while it was set
            if not self.closed:
                if self._pipe is None:
                    self._pipe = WakePipe()
                self._listen(waiter, deadline, self._pipe)
        finally:
            self._reader, self.hearing = outer, hearing
            if outer is not None and outer.rung:
                self.wake()  # it was told while another was the reader, and its sleep goes on
            if self.closed and outer is None:
                self._finish()  # `close` did not wait so long
            self._read_no_more()

    def _read_no_more(self) -> None:
        """Let others read; safe to repeat."""
        try:
            self._reading.release()
        except RuntimeError:
            pass  # this thread did not read

    def done(self, waiter: "ThreadWaiter") -> None:
        """The thread of `waiter` waits no more: if an interrupt left it as the reader, others read from here on."""
        if self._reader is waiter or self._reader is None:
            self._reader = None
            self._read_no_more()
            if self._sleepers:
                self._next_reader()

    def _next_reader(self) -> None:
        # The last to come will wait longest: with the first, nearly every hand-over would change the reader too.
        for waiter in reversed(list(self._sleepers.values())):
            if not waiter.rung:
                waiter.nudge()
                return

    def interrupt(self, waiter: "ThreadWaiter") -> None:
        """Wake the thread that reads, if it is that of `waiter`."""
        if self._reader is waiter and not self.hearing:
            self.wake()

    def wake(self) -> None:
        """Let the thread that reads look around."""
        with self._waking:  # the pipe is not closed meanwhile
            if self._pipe is not None:
                self._pipe.wake()

    def close(self) -> None:
        """Let nobody read any more; the reader closes the files, or this call if nobody reads."""
        self.closed = True
        self.wake()
        if self._reading.acquire(timeout=GOODBYE):
            self._finish()
            self._read_no_more()

    def _finish(self) -> None:
        """Close the files; under `_reading`."""
        self._close_connection()
        self._close_pipe()

    def _close_pipe(self) -> None:
        with self._waking:
            pipe, self._pipe = self._pipe, None
            if pipe is not None:
                pipe.close()

    def reset(self) -> None:
        """In a forked child: nobody waits."""
        self._waking = threading.RLock()  # another thread of the parent may have it
        self._close_pipe()
        self._start_afresh()


class ThreadWaiter:
    """What one waiting thread has: rung when it was promoted, or should look.

    Args:
        readers: among which it waits.
    """

    __slots__ = ("_message", "_readers", "lock", "rung")

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._message: Granted | None = None
        self.rung = False
        self.lock = threading.Lock()
        self.lock.acquire()

    def tell(self, message: Granted | None = None) -> None:
        """Wake the thread."""
        if message is not None:
            self._message = message
        self.rung = True
        self.nudge()
        self._readers.interrupt(self)

    def wake(self) -> None:
        """As `ThreadWakeup.wake`."""
        self.tell()

    def nudge(self) -> None:
        """Wake the thread to look around."""
        try:
            self.lock.release()
        except RuntimeError:
            pass  # it is awake

    def wait(self, seconds: float) -> Granted | None:
        """As `ThreadWakeup.wait`."""
        self._readers.sleep(self, seconds)
        self.rung = False
        message, self._message = self._message, None
        return message

    def close(self) -> None:
        """Nothing to give back, unless an interrupt came while it read."""
        self._readers.done(self)
