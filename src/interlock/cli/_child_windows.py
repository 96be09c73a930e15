"""The process of the command, and the signals of the console, on Windows.

The command and every process that it starts are in a job.  When interlock dies, Windows ends every process in the
job, so no command runs without its lock.  When the command ends normally, its background processes leave the job and
continue.  interlock itself is not in the job, because otherwise the background processes would end with the launcher
`interlock.exe`, which ends the processes of its own job unless they are in no other.

The command has a process group of its own, because only a whole group can be asked to end, by CTRL_BREAK_EVENT; such
a group does not receive the Ctrl-C of the console.

Handlers of signals run in the main thread only, and interrupt neither the wait for a lock nor a sleep, so this
thread waits in slices.
"""

import ctypes
import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from types import FrameType

from interlock.cli.command_process import SignalEvent, Signals
from interlock.cli.exit_codes import BY_SIGNAL

SIGBREAK = 21  # its name in `signal` exists on Windows only
CONSOLE = (signal.SIGINT, SIGBREAK)  # Ctrl-C; Ctrl-Break, and the end of the console
CTRL_BREAK_EVENT = 1  # <wincon.h>, like the following constants of <winnt.h>
CREATE_SUSPENDED, CREATE_NEW_PROCESS_GROUP = 0x4, 0x200
CONTROL_C_EXIT = 0xC000013A  # the status of a process that Ctrl-C or Ctrl-Break has ended
KILLED = BY_SIGNAL + 9  # the status of a process that this module has ended, like after KILL
SLICE = 0.1  # seconds until a handler runs
SHELL_OPTIONS = "/d /s /c"  # no AutoRun; only the outer quotes are removed; run, then exit


class WindowsSignals(Signals):
    """The signals of the console for this process until `close`."""

    def __init__(self) -> None:
        super().__init__()
        taken = [number for number in CONSOLE if signal.getsignal(number) != signal.SIG_IGN]
        self._handlers = {number: signal.signal(number, self._receive) for number in taken}

    def close(self) -> None:
        """Restore the handlers."""
        for number, handler in self._handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def child(self, path: str, words: Sequence[str], keep: bool) -> "WindowsChild":
        """Return the process of a command, not started yet; the job detects the end of the last process."""
        return WindowsChild(path, words, self)

    def sleep(self, seconds: float) -> None:
        """Sleep; a signal raises WaitBroken."""
        until = time.monotonic() + seconds
        with self.breaking():
            while (left := until - time.monotonic()) > 0:
                time.sleep(min(left, SLICE))

    def wait_is_over(self) -> None:
        """Keep signals for `next` from now on; raise WaitBroken after an earlier signal."""
        self._waiting = False  # first: a handler can run between two lines
        self._check()

    def wait_again(self) -> None:
        """Let signals interrupt `breaking` again, as before `wait_is_over`; pending signals count too."""
        self._waiting = True
        while (event := self.next(0.0)) is not None:
            if event.kind == "signal":
                self._break(event.number)

    def next(self, seconds: float) -> SignalEvent | None:
        """Return the next event; None after at most `seconds`, or sooner."""
        return super().next(min(seconds, SLICE))

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if not self._waiting:
            self.put(SignalEvent("signal", number, ends=True))
        elif self._break(number) and self._breakable:
            self._breakable = False
            self._check()


def open_signals() -> WindowsSignals:
    """Return the signals of this process."""
    return WindowsSignals()


def look_up(word: str) -> str | None:
    """Return the path of a program, found like cmd does: by %PATHEXT%, in this folder, then in %PATH%."""
    return shutil.which(word)


def shell_words(text: str) -> tuple[str, ...]:
    """Return the words of a command that runs `text` in cmd."""
    return (os.environ.get("COMSPEC") or "cmd.exe", SHELL_OPTIONS, text)


class WindowsChild:
    """The process of the command, from `start` to at most `discard`.

    Args:
        path: the path of the program.
        words: the words of the command.
        signals: the signals of this process.

    Attributes:
        pid: its process id; 0 before the start.
        status: its exit status as a signed number of 32 bits, like in cmd; 130 if Ctrl-C or Ctrl-Break has ended it;
            None while it runs.
    """

    def __init__(self, path: str, words: Sequence[str], signals: Signals) -> None:
        self.pid = 0
        self.status: int | None = None
        self._path = path
        self._words = words
        self._signals = signals
        self._process: subprocess.Popen[bytes] | None = None
        self._job: Job | None = None

    def start(self, environment: Mapping[str, str]) -> None:
        """Start the command.

        Raises:
            OSError: the program cannot run, or cannot be in a job.
        """
        line: str | list[str] = [self._path, *self._words[1:]]
        if self._words[1:2] == (SHELL_OPTIONS,):  # cmd reads its line itself, and knows no escaped quotes
            line = f'"{self._path}" {SHELL_OPTIONS} "{self._words[2]}"'
        flags = CREATE_NEW_PROCESS_GROUP | CREATE_SUSPENDED  # it runs when it is in the job
        process = subprocess.Popen(line, env=environment, creationflags=flags)
        try:
            job = Job()
            job.resume(process.pid)
        except OSError:
            process.kill()
            process.wait()
            raise
        self.pid, self._process, self._job = process.pid, process, job
        threading.Thread(target=self._tell_end, args=(process,), name="interlock-child", daemon=True).start()

    def _tell_end(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        self._signals.put(SignalEvent("child"))

    def pass_on(self, event: SignalEvent) -> None:
        """Ask the command to end: no signal of the console means anything else."""
        self.ask_to_end()

    def ask_to_end(self) -> bool:
        """Send CTRL_BREAK_EVENT to the group of the command; return False if one of both has no console."""
        if self.pid and self.status is None:
            try:
                os.kill(self.pid, CTRL_BREAK_EVENT)
            except OSError:
                return False
        return True

    def kill(self) -> None:
        """End the command and the processes that it has started: cmd, for one, does not end with its programs."""
        if self._job is not None and self.status is None:
            self._job.end()

    def look(self) -> None:
        """Set `status` if it has ended."""
        if self._process is not None and (code := self._process.poll()) is not None:
            # Python before 3.12.8 cannot exit with a larger number.
            self.status = BY_SIGNAL + signal.SIGINT if code == CONTROL_C_EXIT else ctypes.c_int32(code).value

    def tell_when_all_are_gone(self) -> None:
        """Block until the job is empty; then add the event "gone"."""
        job = self._job  # `discard` may remove it at any time; of a closed job `size` is 0
        while job is not None and job.size():
            time.sleep(SLICE)
        self._signals.put(SignalEvent("gone"))

    def discard(self) -> None:
        """Kill it if it has not ended, and release what it has left running; safe to repeat."""
        if self._process is not None and self._job is not None:
            self.look()
            self.kill()
            self._process.wait()
            self.look()
            self._job.close()
            self._job = None


ACCOUNTING, EXTENDED_LIMITS = 1, 9  # JOBOBJECTINFOCLASS
BREAKAWAY_OK, KILL_ON_JOB_CLOSE = 0x800, 0x2000
PROCESS_TERMINATE, PROCESS_SET_QUOTA, PROCESS_SUSPEND_RESUME = 0x1, 0x100, 0x800


class Limits(ctypes.Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION; only `flags` is used."""

    _fields_ = [
        ("times", ctypes.c_int64 * 2),
        ("flags", ctypes.c_uint32),
        ("working_set", ctypes.c_size_t * 2),
        ("active_processes", ctypes.c_uint32),
        ("affinity", ctypes.c_size_t),
        ("classes", ctypes.c_uint32 * 2),
        ("io", ctypes.c_uint64 * 6),
        ("memory", ctypes.c_size_t * 4),
    ]


class Accounting(ctypes.Structure):
    """JOBOBJECT_BASIC_ACCOUNTING_INFORMATION; only `active` is used."""

    _fields_ = [
        ("times", ctypes.c_int64 * 4),
        ("counts", ctypes.c_uint32 * 2),
        ("active", ctypes.c_uint32),
        ("terminated", ctypes.c_uint32),
    ]


class Job:
    """A job whose processes end with this process, except those that leave the job by their own request.

    The calls are those of https://learn.microsoft.com/windows/win32/procthread/job-objects.

    Raises:
        OSError: the system makes no job.
    """

    def __init__(self) -> None:
        self._system = library("kernel32")
        self._system.CreateJobObjectW.restype = self._system.OpenProcess.restype = ctypes.c_void_p
        self._handle = ctypes.c_void_p(checked(self._system.CreateJobObjectW(None, None)))
        self._limit(KILL_ON_JOB_CLOSE)

    def _limit(self, flags: int) -> None:
        limits = Limits(flags=flags | BREAKAWAY_OK)
        size = ctypes.sizeof(limits)
        checked(self._system.SetInformationJobObject(self._handle, EXTENDED_LIMITS, ctypes.byref(limits), size))

    def resume(self, pid: int) -> None:
        """Add a suspended process, and let it run.

        Raises:
            OSError: the process cannot enter the job.
        """
        access = PROCESS_TERMINATE | PROCESS_SET_QUOTA | PROCESS_SUSPEND_RESUME
        process = ctypes.c_void_p(checked(self._system.OpenProcess(access, False, pid)))
        try:
            checked(self._system.AssignProcessToJobObject(self._handle, process))
            # Popen has closed the handle of the thread, which the documented ResumeThread needs.
            if library("ntdll").NtResumeProcess(process):  # a status that is not 0
                raise OSError(errno.EIO, "the suspended process cannot run")
        finally:
            self._system.CloseHandle(process)

    def size(self) -> int:
        """Return the number of its running processes."""
        found = Accounting()
        size = ctypes.sizeof(found)
        self._system.QueryInformationJobObject(self._handle, ACCOUNTING, ctypes.byref(found), size, None)
        return int(found.active)

    def end(self) -> None:
        """End all processes of the job with the status `KILLED`."""
        self._system.TerminateJobObject(self._handle, KILLED)

    def close(self) -> None:
        """Release the processes of the job: they no longer end with this process."""
        self._limit(0)
        self._system.CloseHandle(self._handle)


def library(name: str) -> ctypes.CDLL:
    """Return a library of the system.

    Raises:
        OSError: this is not Windows.
    """
    if sys.platform == "win32":
        return ctypes.WinDLL(name, use_last_error=True)
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


def checked(result: int) -> int:
    """Return the result of a function of the system.

    Raises:
        OSError: it is 0, so the function has failed.
    """
    if sys.platform == "win32" and not result:
        raise ctypes.WinError(ctypes.get_last_error())
    return result
