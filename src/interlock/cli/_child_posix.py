"""The process of the command, and its signals, on POSIX systems.

The signals of interest are blocked in every thread, and a listener thread takes them one by one, for three reasons:
none is lost between two states of the guard; `sigwaitinfo` names the sender, which a handler in Python can't know;
and a handler would have to raise through the library at any line.  Only the wait for the lock is broken off by an
exception: the listener wakes the main thread with SIGURG, which is not blocked there and has no other use.
"""

import errno
import fcntl
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from interlock.cli.command_process import SignalEvent, Signals
from interlock.cli.exit_codes import BY_SIGNAL, UNAVAILABLE

ENDING = frozenset((signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2))
ORDERS = ENDING - {signal.SIGUSR1, signal.SIGUSR2}  # they end a command that does not handle them
KEYBOARD = frozenset((signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP))
WAKE = signal.SIGURG
POKE_INTERVAL = 0.05  # seconds between two wake-ups


class PosixSignals(Signals):
    """The signals of this process until `close`; created before there are threads.

    Attributes:
        mask: the signals that were blocked before.
        ignores_children: True if SIGCHLD was ignored before.
    """

    def __init__(self) -> None:
        super().__init__()
        leave = {number for number in (*ENDING, signal.SIGTSTP) if signal.getsignal(number) == signal.SIG_IGN}
        self._taken = {*ENDING, signal.SIGTSTP, signal.SIGCHLD} - leave
        self._main = threading.get_ident()
        self._mutex = threading.Lock()
        self._closed = False
        # Every thread that the library starts later inherits the mask.
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._taken)
        self._handlers = {WAKE: signal.signal(WAKE, self._woken)}
        before = signal.getsignal(signal.SIGCHLD)
        self.ignores_children = before == signal.SIG_IGN
        # If it is ignored, the child's status cannot be read, and systems other than Linux may not keep it pending.
        # Otherwise it stays, because another thread may receive one while the handler is restored, and
        # then Python prints that it was "ignored due to race condition".
        if sys.platform != "linux" or before != signal.SIG_DFL:
            self._handlers[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, _nothing)
        self._thread = threading.Thread(target=self._listen, name="interlock-signals", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop receiving signals, and restore the handlers."""
        self._closed = True
        assert self._thread.ident is not None  # it was started
        signal.pthread_kill(self._thread.ident, WAKE)
        self._thread.join()
        for number, handler in self._handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)

    def child(self, path: str, words: Sequence[str], keep: bool) -> "PosixChild":
        """Return the process of a command, not started yet."""
        return PosixChild(path, words, self, keep)

    def sleep(self, seconds: float) -> None:
        """Sleep; a signal raises WaitBroken."""
        with self.breaking():
            time.sleep(seconds)

    def wait_is_over(self) -> None:
        """Keep signals for `next` from now on; raise WaitBroken after an earlier signal."""
        with self._mutex:
            self._check()
            self._waiting = False

    def wait_again(self) -> None:
        """Let signals interrupt `breaking` again, as before `wait_is_over`; pending signals count too."""
        with self._mutex:
            self._waiting = True
        while (event := self.next(0.0)) is not None:
            self._while_waiting(event.number)

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
                elif event.number != WAKE:
                    self.put(event)

    def _wake(self) -> None:
        """Wake the main thread until it reacts: a signal just before a system call has no effect."""
        signal.pthread_kill(self._main, WAKE)
        while self._breakable and not self._closed:
            time.sleep(POKE_INTERVAL)
            signal.pthread_kill(self._main, WAKE)

    def _while_waiting(self, number: int) -> None:
        if number == signal.SIGTSTP:
            suspend()
        elif number in ENDING and self._break(number):
            threading.Thread(target=self._wake, name="interlock-wake", daemon=True).start()


def suspend() -> None:
    """Stop this process like SIGTSTP does by default; return when it continues."""
    signal.pthread_kill(threading.get_ident(), signal.SIGTSTP)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTSTP})
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})


def _nothing(number: int, frame: FrameType | None) -> None:
    """Do nothing, as a handler that is neither the default nor ignored."""


if hasattr(signal, "sigwaitinfo"):

    def _take(awaited: set[signal.Signals]) -> SignalEvent:
        info = signal.sigwaitinfo(awaited)
        by_kernel = info.si_code > 0 if sys.platform == "linux" else info.si_pid == 0
        return _event(info.si_signo, by_kernel and info.si_signo in KEYBOARD, info.si_pid)

else:

    def _take(awaited: set[signal.Signals]) -> SignalEvent:
        number = signal.sigwait(awaited)
        return _event(number, number in KEYBOARD and in_foreground(), 0)


def _event(number: int, by_terminal: bool, sender: int) -> SignalEvent:
    if number == signal.SIGCHLD:
        return SignalEvent("child")
    return SignalEvent(
        "suspend" if number == signal.SIGTSTP else "signal", number, number in ORDERS, by_terminal, sender
    )


def in_foreground() -> bool:
    """Return True if this process is in the foreground group of its terminal.

    If the system does not name the sender of a signal, a keyboard's signal then counts as the terminal's.
    """
    with suppress(OSError), open("/dev/tty") as terminal:
        return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    return False


PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
FIRST_HIGH, HIGH = 100, 10  # file descriptors: scripts use low ones; start at HIGH if `ulimit -n` is low
SHELL = "/bin/sh"


def open_signals() -> PosixSignals:
    """Return the signals of this process."""
    return PosixSignals()


def look_up(word: str) -> str | None:
    """Return the path of a program, found like the shell does; None if not found.

    `shutil.which` does the same, but its import makes each run start later by milliseconds.
    """
    folders = [""] if "/" in word else os.get_exec_path()
    paths = (os.path.join(folder, word) for folder in folders)
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), None)


def shell_words(text: str) -> tuple[str, ...]:
    """Return the words of a command that runs `text` in the user's shell."""
    return (os.environ.get("SHELL") or SHELL, "-c", text)


class PosixChild:
    """The process of the command, from `start` to at most `discard`.

    Args:
        path: the path of the program.
        words: the words of the command.
        signals: the signals of this process.
        keep: True to give the command a pipe that shows the end of its last process.

    Attributes:
        pid: its process id; 0 before the start.
        status: its exit status like in a shell; None while it runs.
    """

    def __init__(self, path: str, words: Sequence[str], signals: PosixSignals, keep: bool) -> None:
        self.pid = 0
        self.status: int | None = None
        self._path = path
        self._words = words
        self._signals = signals
        self._alive = self._alive_in = -1
        if keep:
            self._alive, into = os.pipe()
            lowest = min(FIRST_HIGH, max(HIGH, os.sysconf("SC_OPEN_MAX") // 2))
            self._alive_in = fcntl.fcntl(into, fcntl.F_DUPFD, lowest)  # it is inherited
            os.close(into)
        self._parent = os.getpid()
        self._prctl = prctl()

    def start(self, environment: Mapping[str, str]) -> None:
        """Start the command.

        Raises:
            OSError: the program cannot run.
        """
        report, report_in = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._prepare()
                _execute(self._path, self._words, environment)
            except OSError as error:
                os.write(report_in, b"%d" % (error.errno or errno.EIO))
            finally:
                os._exit(UNAVAILABLE)
        for number in {report_in, self._alive_in} - {-1}:
            os.close(number)
        failure = os.read(report, 20)  # nothing: the command runs, and its start has closed the pipe
        os.close(report)
        if failure:
            self._reap(self.pid, 0)
            raise OSError(int(failure), os.strerror(int(failure)))

    def _prepare(self) -> None:
        """Restore the signals of the command, in the child."""
        self._prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)  # no command runs without the lock
        if os.getppid() != self._parent:
            os._exit(0)
        for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores the last two
            if number != signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        if self._signals.ignores_children:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._signals.mask)

    def pass_on(self, event: SignalEvent) -> None:
        """Send the command a signal of this process, unless it has received the signal itself."""
        if not event.by_terminal and event.sender != self.pid:
            self._send(event.number)
        if event.kind == "suspend":
            suspend()
            if not event.by_terminal:  # otherwise the user who continues the job also continues the command
                self._send(signal.SIGCONT)

    def ask_to_end(self) -> bool:
        """Send TERM; return True."""
        self._send(signal.SIGTERM)
        self._send(signal.SIGCONT)  # a stopped process handles TERM only after CONT
        return True

    def kill(self) -> None:
        """Send KILL."""
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        """Send a signal to the command, unless it has ended."""
        if self.pid and self.status is None:
            with suppress(PermissionError):  # it runs as another user, like sudo: only a wait is left
                os.kill(self.pid, number)

    def look(self) -> None:
        """Set `status` if it has ended; as process 1 of a container, reap every process whose parent is gone, too."""
        is_first = os.getpid() == 1
        while self._reap(-1 if is_first else self.pid, os.WNOHANG) and is_first:
            pass

    def tell_when_all_are_gone(self) -> None:
        """Block until no process has the pipe of `keep` any more; then add the event "gone"."""
        os.read(self._alive, 1)
        self._signals.put(SignalEvent("gone"))

    def discard(self) -> None:
        """Kill it if it has not ended; safe to repeat."""
        if self.pid and self.status is None:
            self.kill()
            self._reap(self.pid, 0)

    def _reap(self, which: int, how: int) -> bool:
        """Take the status of a process; return True if there was one."""
        try:
            pid, status = os.waitpid(which, how)
        except ChildProcessError:
            return False
        if pid == self.pid:
            code = os.waitstatus_to_exitcode(status)
            self.status = code if code >= 0 else BY_SIGNAL - code
        return pid != 0


def _execute(path: str, words: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    try:
        os.execve(path, tuple(words), environment)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
        # A script without a first line that names its interpreter: the shell's, as execvp(3) has it.
        os.execve(SHELL, (SHELL, path, *words[1:]), environment)


def prctl() -> Callable[..., object]:
    """Return prctl(2), or, if the system has none, a function that does nothing.

    Call this before the fork: a child of a process with threads must not import.
    """
    if sys.platform == "linux":
        with suppress(ImportError, OSError, AttributeError):  # a Python without ctypes: as on other systems
            import ctypes

            return ctypes.CDLL(None).prctl
    return lambda *_: None
