"""The processes that have the name of an instance, one after the other: what each writes into its claims.

A process is known to be dead only where its pid means something: on the same boot, in the same pid namespace.  A
restarted container has its old hostname and often its old pid, so only the start of the process tells the two apart.
"""

import os
import re
from typing import NamedTuple
from zlib import crc32

from interlock.core.claims import INSTANCE_MARK, ClaimView
from interlock.runtime import clock
from interlock.runtime.process import HOST, pid

_MARK = re.compile(rf"([!-~]+){INSTANCE_MARK}([0-9a-f]{{8}})-(\d+)-(\d+){INSTANCE_MARK}")
_loaded = clock.time_of_day()
ABROAD = 9_999_999_999_999  # milliseconds, in the year 2286
"""The `since` of a connection that came in a pickle: its process does not end when the sender starts again, so no
process of another host may take its claims."""


class Incarnation(NamedTuple):
    """A process that has the name of an instance.

    Attributes:
        instance: the name.
        space: identifies the boot and the namespaces in which pids and starts are comparable.
        pid: its process id.
        start: its start in clock ticks since the boot; 0 if the system does not show it.
        since: the start of the process that connected, which may be a parent; milliseconds since the epoch, or
            `ABROAD`.
    """

    instance: str
    space: str
    pid: int
    start: int
    since: int

    @property
    def mark(self) -> str:
        """The text before the name of the thread in each claim."""
        return f"{self.instance}{INSTANCE_MARK}{self.space}-{self.start}-{self.since}{INSTANCE_MARK}"

    def is_over(self, mine: "Incarnation") -> bool:
        """Return True if `mine`, the calling process, may remove the claims of this one.

        It must be an earlier one of the same name: on this host it must be known to be dead, on another host it must
        have started before the calling process.
        """
        if self.instance != mine.instance:
            return False
        return _is_dead(self.pid, self.start) if self.space == mine.space else self.since < mine.since


def this_process(instance: str, since: int) -> Incarnation:
    """Return the incarnation that this process is; arguments as in `Incarnation`."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            place = file.read() + os.readlink("/proc/self/ns/pid")
        if os.path.lexists("/proc/self/ns/time"):  # it moves the starts that a process sees
            place += os.readlink("/proc/self/ns/time")
    except OSError:
        place = HOST
    return Incarnation(instance, f"{crc32(place.encode()):08x}", pid(), _state_of(pid())[1], since)


def author_of(view: ClaimView) -> Incarnation | None:
    """Return the incarnation that made a claim, of a view as the store gives it; None without one."""
    found = _MARK.match(view.thread)  # a store with little room may have cut it
    return None if found is None else Incarnation(found[1], found[2], view.pid, int(found[3]), int(found[4]))


def began() -> int:
    """Return the start of this process, in milliseconds since the epoch; of this module, if the system hides it."""
    start = _state_of(pid())[1] if hasattr(os, "sysconf") else 0  # Windows has neither
    since = clock.time_of_day() - clock.awake_or_not() + start / os.sysconf("SC_CLK_TCK") if start else _loaded
    return int(since * 1000)


def _state_of(pid: int) -> tuple[bool, int]:
    """Return whether a process has ended, and its start in clock ticks; False and 0 if the system hides them."""
    try:
        # Without a /proc of its own, a process in a pid namespace would read about others.
        if os.readlink("/proc/self") == str(os.getpid()):
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            # A zombie with threads has ended its main thread only, as a program that embeds Python can.
            return fields[0] in (b"Z", b"X") and int(fields[17]) < 2, int(fields[19])
    except (OSError, IndexError, ValueError):
        pass  # no such process, no /proc, or one that hides the processes of others
    return False, 0


def _is_dead(pid: int, start: int) -> bool:
    """Return True if the process with this pid and start has certainly ended."""
    ended, found = _state_of(pid)
    if start and found:
        return found != start or ended
    if os.name != "posix":  # there os.kill(pid, 0) is no question, but an event
        return False
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, ProcessLookupError)
    return False
