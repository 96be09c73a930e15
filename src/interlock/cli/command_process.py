"""What `run_locked` needs of a system: the process of the command, and the signals of this process.

`_child_posix` and `_child_windows` provide it; `child_process` chooses.
"""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Literal, NamedTuple, Protocol

from interlock.cli.exit_codes import BY_SIGNAL

INSIST_AFTER = 1.0  # seconds after which a second signal ends a wait for a store that does not reply


class SignalEvent(NamedTuple):
    """An event for the guard.

    Attributes:
        kind: "signal"; "suspend": a signal that stops this process until it is continued; "child": a child process
            has ended; "lost": the lock was lost; "gone": no process of the command is left, for --keep.
        number: the signal's number.
        ends: True for a signal that ends a command that does not handle it.
        by_terminal: True if a key of the terminal sent it, so that the whole foreground group has received it.
        sender: process id of the sender; 0 if unknown.
    """

    kind: Literal["signal", "suspend", "child", "lost", "gone"]
    number: int = 0
    ends: bool = False
    by_terminal: bool = False
    sender: int = 0


class WaitBroken(BaseException):
    """A signal that ends the wait for the lock."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Child(Protocol):
    """The process of the command, from `start` to at most `discard`."""

    @property
    def pid(self) -> int:
        """Its process id; 0 before the start."""

    @property
    def status(self) -> int | None:
        """Its exit status like in a shell; None while it runs."""

    def start(self, environment: Mapping[str, str]) -> None:
        """Start the command.

        Raises:
            OSError: the program cannot run.
        """

    def pass_on(self, event: SignalEvent) -> None:
        """Do with the command what a signal to this process means for it."""

    def ask_to_end(self) -> bool:
        """Ask the command to end; return False if it cannot be asked."""

    def kill(self) -> None:
        """End the command without asking; `look` shows when it has ended."""

    def look(self) -> None:
        """Set `status` if it has ended."""

    def tell_when_all_are_gone(self) -> None:
        """Block until no process of the command is left, for --keep; then add the event "gone"."""

    def discard(self) -> None:
        """Kill it if it has not ended, and wait for its end; safe to repeat."""


class Signals(ABC):
    """The signals of this process until `close`; created before there are threads.

    Attributes:
        put: adds an event, from any thread.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[SignalEvent] = SimpleQueue()
        self._waiting = True
        self._breakable = False
        self._broken_by = 0
        self._broken_at = 0.0
        self.put = self._queue.put

    @abstractmethod
    def close(self) -> None:
        """Stop receiving signals, and restore the handlers."""

    @abstractmethod
    def child(self, path: str, words: Sequence[str], keep: bool) -> Child:
        """Return the process of a command, not started yet.

        Args:
            path: the path of the program.
            words: the words of the command.
            keep: True to detect the end of its last process.
        """

    @abstractmethod
    def sleep(self, seconds: float) -> None:
        """Sleep; a signal raises WaitBroken."""

    @contextmanager
    def breaking(self) -> Iterator[None]:
        """Let a signal interrupt the block, by `WaitBroken`."""
        self._breakable = True
        try:
            self._check()
            yield
        finally:
            self._breakable = False

    @abstractmethod
    def wait_is_over(self) -> None:
        """Keep signals for `next` from now on; raise WaitBroken after an earlier signal."""

    @abstractmethod
    def wait_again(self) -> None:
        """Let signals interrupt `breaking` again, as before `wait_is_over`; pending signals count too."""

    def next(self, seconds: float) -> SignalEvent | None:
        """Return the next event; None after at most `seconds`."""
        try:
            return self._queue.get(timeout=seconds)
        except Empty:
            return None

    def _check(self) -> None:
        if self._broken_by:
            raise WaitBroken(self._broken_by)

    def _break(self, number: int) -> bool:
        """Note a signal during the wait; return True for the first one."""
        now = time.monotonic()
        if not self._broken_by:
            self._broken_by, self._broken_at = number, now
            return True
        if now > self._broken_at + INSIST_AFTER:
            # The store does not reply, so the claim cannot be withdrawn: its lease will expire.
            os._exit(BY_SIGNAL + number)
        return False


class System(Protocol):
    """The module of a system."""

    def open_signals(self) -> Signals:
        """Return the signals of this process."""

    def look_up(self, word: str) -> str | None:
        """Return the path of a program, found like the shell does; None if not found."""

    def shell_words(self, text: str) -> tuple[str, ...]:
        """Return the words of a command that runs `text` in the user's shell."""
