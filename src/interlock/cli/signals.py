"""Signals of the guard: taken one by one, each with the knowledge whether the terminal sent it.

The signals of interest are blocked in every thread, and a listener thread takes them, for three reasons: none is
lost between two states of the guard; `sigwaitinfo` tells who sent it, which a handler in Python can't know; and a
handler would have to raise through the library at any line.  Only the wait for the lock is broken off by an
exception: the listener pokes the main thread with SIGURG, which stays open there and which nobody else uses.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Literal, NamedTuple

from interlock.cli.exits import BY_SIGNAL

ENDING = frozenset((signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2))
KEYBOARD = frozenset((signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP))
WAKE = signal.SIGURG
AGAIN = 0.05  # seconds between two pokes
INSIST_AFTER = 1.0  # seconds after which another signal ends what the first one did not


class SignalEvent(NamedTuple):
    """Something that the guard must attend to.

    Attributes:
        kind: "signal"; "lost": the lock was lost; "gone": no process has the pipe of --keep any more.
        number: of the signal.
        by_terminal: True if a key of the terminal made it, so that the whole foreground group has it already.
        sender: process id of the sender; 0 where it is not known.
    """

    kind: Literal["signal", "lost", "gone"]
    number: int = 0
    by_terminal: bool = False
    sender: int = 0


class WaitBroken(BaseException):
    """A signal came that ends the wait for the lock."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Signals:
    """The signals of this process, from here until `close`; made before there are threads.

    Attributes:
        mask: the signals that were blocked before.
        ignores_children: True if SIGCHLD was ignored before.
        on_child: called in the listener's thread when a process ends during the wait for the lock.
    """

    def __init__(self) -> None:
        leave = {number for number in (*ENDING, signal.SIGTSTP) if signal.getsignal(number) == signal.SIG_IGN}
        self.on_child: Callable[[], None] = _no_child
        self._taken = {*ENDING, signal.SIGTSTP, signal.SIGCHLD} - leave
        self._main = threading.get_ident()
        self._mutex = threading.Lock()
        self._queue: SimpleQueue[SignalEvent] = SimpleQueue()
        self._waiting = True
        self._breakable = False
        self._broken_by = 0
        self._broken_at = 0.0
        self._thread: threading.Thread | None = None
        self._closed = False
        # Every thread that the library starts from now on inherits the mask.
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._taken)
        self._handlers = {WAKE: signal.signal(WAKE, self._woken)}
        before = signal.getsignal(signal.SIGCHLD)
        self.ignores_children = before == signal.SIG_IGN
        # Where it is ignored, nobody can ask for the child's status, and others than Linux may not keep it pending.
        # Else it stays as it is: another thread of the program may be taking one while the handler is set back, and
        # then Python prints that it was "ignored due to race condition".
        if sys.platform != "linux" or before != signal.SIG_DFL:
            self._handlers[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, _nothing)

    def listen(self) -> None:
        """Start to take signals."""
        self._thread = threading.Thread(target=self._listen, name="interlock-signals", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop taking signals, and leave them as they were found."""
        self._closed = True
        if self._thread is not None and self._thread.ident is not None:
            signal.pthread_kill(self._thread.ident, WAKE)
            self._thread.join()
        for number, handler in self._handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)

    @contextmanager
    def breaking(self) -> Iterator[None]:
        """Let a signal break off what happens inside, by `WaitBroken`."""
        self._breakable = True
        try:
            self._check()
            yield
        finally:
            self._breakable = False

    def wait_is_over(self) -> None:
        """Keep signals for `next` from now on; raise WaitBroken if one came before."""
        with self._mutex:
            self._check()
            self._waiting = False

    def put(self, event: SignalEvent) -> None:
        """Add an event, from any thread."""
        self._queue.put(event)

    def next(self, seconds: float | None = None) -> SignalEvent | None:
        """Return the next event; None if none came within `seconds`."""
        try:
            return self._queue.get(timeout=seconds)
        except Empty:
            return None

    def _check(self) -> None:
        if self._broken_by:
            raise WaitBroken(self._broken_by)

    def _woken(self, number: int, frame: FrameType | None) -> None:
        if self._breakable:
            self._breakable = not self._broken_by
            self._check()

    def _listen(self) -> None:
        awaited = {*self._taken, WAKE}
        signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
        while not self._closed:  # the wake-up may have come before it was blocked
            event = _take(awaited)
            with self._mutex:
                if self._closed:
                    return
                if self._waiting:
                    self._while_waiting(event.number)
                else:
                    self._queue.put(event)

    def _wake(self) -> None:
        """Wake the main thread until it heeds: a signal that comes just before a system call does not break it."""
        signal.pthread_kill(self._main, WAKE)
        while self._breakable and not self._closed:
            time.sleep(AGAIN)
            signal.pthread_kill(self._main, WAKE)

    def _while_waiting(self, number: int) -> None:
        if number == signal.SIGTSTP:
            stop_here()
        elif number == signal.SIGCHLD:
            self.on_child()
        elif number in ENDING:
            now = time.monotonic()
            if not self._broken_by:
                self._broken_by, self._broken_at = number, now
                threading.Thread(target=self._wake, name="interlock-wake", daemon=True).start()
            elif now > self._broken_at + INSIST_AFTER:
                # The store does not answer, so that the claim can't be taken back: its lease will end.
                os._exit(BY_SIGNAL + number)


def stop_here() -> None:
    """Stop this process as SIGTSTP does by default; return when it is continued."""
    signal.pthread_kill(threading.get_ident(), signal.SIGTSTP)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTSTP})
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})


def _no_child() -> None:
    """Do nothing: there is no child yet."""


def _nothing(number: int, frame: FrameType | None) -> None:
    """Be no default and not ignored."""


if hasattr(signal, "sigwaitinfo"):

    def _take(awaited: set[signal.Signals]) -> SignalEvent:
        info = signal.sigwaitinfo(awaited)
        if sys.platform == "linux":
            by_terminal = info.si_code > 0 and info.si_signo in KEYBOARD  # positive: the kernel made it
        else:
            by_terminal = info.si_pid == 0 and info.si_signo in KEYBOARD
        return SignalEvent("signal", info.si_signo, by_terminal, info.si_pid)

else:

    def _take(awaited: set[signal.Signals]) -> SignalEvent:
        number = signal.sigwait(awaited)
        return SignalEvent("signal", number, number in KEYBOARD and in_foreground())


def in_foreground() -> bool:
    """Tell whether this process is in the foreground group of its terminal.

    Where the system does not say who sent a signal, a keyboard's signal counts as the terminal's if so.
    """
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
