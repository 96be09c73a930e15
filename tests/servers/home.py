"""The home of a private server: a temporary folder and processes that end with the process that started them.

The owner has one end of a pipe; a guard, a small shell script in its own session, reads the other end. When the owner
ends, even by SIGKILL, the guard reads the end of the file, kills the processes and removes the folder. Each process
writes a note into the folder before it becomes the server, and the guard first renames the folder: a process that has
not written its note by then can't write it any more, and exits.
"""

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from tests.support.closing import Closing as Closing

T = TypeVar("T")

WAIT_LIMIT = 60.0
"""Seconds to wait for the start of a server; only a broken one takes so long."""

PAUSE = 0.001

PORTS = range(10_000, 30_000)
"""Ports of private servers: below the system's range for outgoing connections, so that a restart finds its port free.
"""

NOTE = ".process"  # the suffix of the notes: the pid of a process, and the signal that ends it

ENTER = 'echo "$$ $2" > "$1" && shift 2 && exec "$@"'

GUARD = """
trap '' HUP INT TERM
read -r nothing
gone="$1.gone"
mv "$1" "$gone" 2>/dev/null || exit 0
notes=$(find "$gone" -name '*.process' | tr '\\n' ' ')
for note in $notes; do
    read -r pid signal < "$note" && kill -s "$signal" "$pid" && kill -s CONT "$pid"
done 2>/dev/null
tries=0
for note in $notes; do
    read -r pid signal < "$note" || continue
    while [ $signal != KILL ] && kill -0 "$pid" 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -gt 100 ] && kill -s KILL "$pid" && break
        sleep 0.1
    done
done
while ! rm -rf "$gone"; do sleep 0.1; done
"""


class Missing(Exception):
    """A server can't be started here: a program or a package is not installed; the message says how to get it."""


class NotStarted(Exception):
    """A server did not start, or ended by itself; the message has the last lines of its log."""


def program(name: str, how: str, path: str = "/usr/sbin:/usr/local/sbin") -> Path:
    """Return the path of a program.

    Args:
        name: its name.
        how: the command that installs it.
        path: folders to search besides those of PATH.

    Raises:
        Missing: it is not installed; the message says how to get it.
    """
    found = shutil.which(name) or shutil.which(name, path=path)
    if found is None:
        raise Missing(f"there is no `{name}` here; get it by: {how}")
    return Path(found)


class Home:
    """A temporary folder that is removed when its owner ends.

    Args:
        what: a part of the folder's name.

    Attributes:
        folder: its path.
    """

    def __init__(self, what: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"interlock-{what}-"))
        reading, writing = os.pipe()
        try:
            guard = subprocess.Popen(
                ["/bin/sh", "-c", GUARD, "guard", str(self.folder)],
                stdin=reading,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        except BaseException:
            os.close(writing)
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        finally:
            os.close(reading)
        self._processes: dict[str, tuple[subprocess.Popen[bytes], signal.Signals]] = {}
        self.close = weakref.finalize(self, _close, self._processes, guard, writing, os.getpid())
        _homes.add(self)
        self._writing = writing

    def spawn(
        self,
        note: str,
        command: Sequence[str | Path],
        *,
        ends: signal.Signals = signal.SIGKILL,
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a process that ends when the owner ends.

        Args:
            note: the name of the process within this home.
            command: the program and its arguments.
            ends: the signal that ends it.
            log: the file for its output.
            environment: its environment; None for the owner's.
        """
        mark = self.folder / f"{note}{NOTE}"
        with log.open("ab") as sink:
            process = subprocess.Popen(
                ["/bin/sh", "-c", ENTER, "enter", str(mark), ends.name.removeprefix("SIG"), *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                cwd=log.parent,
                env=environment,
                start_new_session=True,
            )
        self._processes[note] = process, ends
        return process

    def forget(self, note: str) -> None:
        """Remove the note of a process that was waited for: its pid may be used for another process."""
        self._processes.pop(note, None)
        with contextlib.suppress(FileNotFoundError):
            (self.folder / f"{note}{NOTE}").unlink()

    def disown(self) -> None:
        """Forget the home in a forked child: it belongs to the parent."""
        os.close(self._writing)
        self.close.detach()


def _close(
    processes: "dict[str, tuple[subprocess.Popen[bytes], signal.Signals]]",
    guard: "subprocess.Popen[bytes]",
    writing: int,
    owner: int,
) -> None:
    if os.getpid() != owner:
        return
    for process, ends in processes.values():
        if process.poll() is None:
            process.send_signal(ends)
            process.send_signal(signal.SIGCONT)
            process.wait()
    os.close(writing)
    guard.wait()


_homes: "weakref.WeakSet[Home]" = weakref.WeakSet()


def _disown_all() -> None:
    for home in list(_homes):
        if home.close.alive:
            home.disown()


os.register_at_fork(after_in_child=_disown_all)


_made: dict[str, Home] = {}


def place_data(what: str, data: Path, make: Callable[[], None]) -> None:
    """Create the data folder of a new server: the server's program makes it once in a process, then it is copied.

    Args:
        what: the server and its settings, which identify the folder to copy.
        data: the path of the folder.
        make: creates the folder there.
    """
    if what in _made:
        subprocess.run(["cp", "-a", str(_made[what].folder / "data"), str(data)], check=True)
        return
    make()
    _made[what] = Home("data")
    subprocess.run(["cp", "-a", str(data), str(_made[what].folder)], check=True)


class Port:
    """A free TCP port of 127.0.0.1, reserved for one server, also while that is down.

    The reservation is a bound UDP port of the same number, which other users of this class try to bind first.

    Args:
        number: the port to take; None for any free one.

    Attributes:
        number: the port.
    """

    def __init__(self, number: int | None = None) -> None:
        candidates = iter([number]) if number is not None else iter(random.sample(PORTS, len(PORTS)))
        for self.number in candidates:
            keeper = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            try:
                keeper.bind(("127.0.0.1", self.number))
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("127.0.0.1", self.number))
            except OSError:
                keeper.close()
                continue
            self._keeper = keeper
            return
        raise NotStarted(f"the port {number} is taken" if number is not None else "no free port was found")

    def close(self) -> None:
        """End the reservation."""
        self._keeper.close()


def eventually(ready: Callable[[], T], failed: Callable[[], str | None], what: str) -> T:
    """Wait until `ready()` is true, and return what it returned.

    Args:
        ready: called repeatedly; an `OSError` means "not yet".
        failed: returns the reason if the condition can never become true; None while it can.
        what: the condition as text.

    Raises:
        NotStarted: it failed, or the condition did not become true within `WAIT_LIMIT`.
    """
    deadline = time.monotonic() + WAIT_LIMIT
    pause = PAUSE
    while True:
        with contextlib.suppress(OSError):
            answer = ready()
            if answer:
                return answer
        reason = failed()
        if reason is not None:
            raise NotStarted(f"{what}: {reason}")
        if time.monotonic() > deadline:
            raise NotStarted(f"{what}: not within {WAIT_LIMIT:g} s")
        time.sleep(pause)
        pause = min(pause * 1.2, 0.02)


def last_lines(log: Path, count: int = 15) -> str:
    """Return the last lines of a log, for the message of an error."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-count:])
    except OSError as error:
        return f"(no log: {error})"
