"""doctor: is this folder fit to keep locks, and what lies in it that should not?"""

import contextlib
import fcntl
import os
import select
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from interlock.core.claims import Check
from interlock.core.errors import StoreError
from interlock.stores.files import liveness_checks
from interlock.stores.files.failures import failed
from interlock.stores.files.folder import Folder, names_in
from interlock.stores.files.keys import HEAD_MOST, file_name, key_in
from interlock.stores.files.linefile import is_pending
from interlock.stores.files.liveness import Liveness
from interlock.stores.files.machine import LOCAL, file_system, is_guest, is_network
from interlock.stores.files.marker import MAGIC, MOST, defect
from interlock.stores.files.opening import kind_of, open_file, read_file
from interlock.stores.files.record import SLOT, parse

OURS = {"interlock", "fences", "using", "pending", "alive", "broken"}
MOST_SHOWN = 5


def examine(folder: Folder, liveness: Liveness) -> list[Check]:
    """Return the findings about a folder, and about this process in it."""
    checks: list[tuple[str, Callable[[], Iterator[Check]]]] = [
        ("liveness pipes", lambda: liveness_checks.examine(folder, liveness)),
        ("file system", lambda: _file_system(folder)),
        ("permissions", lambda: _permissions(folder)),
        ("OS locks", lambda: _os_locks(folder)),
        ("named pipes", lambda: _named_pipes(folder)),
        ("machine", lambda: _machine(folder)),
        ("clock", lambda: _clock(folder)),
        ("contents", lambda: _contents(folder, liveness.is_alive)),
    ]
    found: list[Check] = []
    for name, check in checks:
        try:
            found += check()
        except OSError as error:
            found.append(Check(name, "fail", str(failed("it can't be found out", error))))
        except StoreError as error:
            found.append(Check(name, "fail", str(error)))
    return found


def _file_system(folder: Folder) -> Iterator[Check]:
    kind = file_system(folder.path)
    if is_network(kind):
        yield Check("file system", "fail", f"{kind} reaches several machines: choose a folder on a local disk")
    elif is_guest(kind) or kind not in LOCAL:
        yield Check(
            "file system", "warn", f"{kind} may reach others than this machine, who do not see its locks: be sure"
        )
    else:
        yield Check("file system", "ok", f"{folder.path} lies on {kind}")


def _permissions(folder: Folder) -> Iterator[Check]:
    for path in (folder.path, folder.using, folder.pending, folder.alive):
        if not os.path.lexists(path):
            yield Check(
                "permissions",
                "warn",
                f"{path} is missing, and made again when it is needed: {liveness_checks.REMEDY}",
            )
            return
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            yield Check("permissions", "fail", f"{path} can't be read and written by this user: change its mode")
            return
    mode = folder.path.stat().st_mode
    if mode & 0o002 and not mode & stat.S_ISVTX:
        yield Check("permissions", "warn", f"every user may write to {folder.path} and take locks away: chmod o-w")
    elif mode & 0o022:
        yield Check("permissions", "ok", "shared: everybody who may write there can stop everybody")
    else:
        yield Check("permissions", "ok", "readable and writable")


def _os_locks(folder: Folder) -> Iterator[Check]:
    path = folder.path / f".doctor-{os.urandom(6).hex()}"
    first = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    second = -1
    try:
        second = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield Check("OS locks", "ok", "flock excludes")
        else:
            yield Check("OS locks", "fail", "flock does not exclude here: choose a folder on a local disk")
    except OSError as error:
        yield Check("OS locks", "fail", f"flock does not work here ({error}): choose a folder on a local disk")
    finally:
        os.close(first)
        if second >= 0:
            os.close(second)
        os.unlink(path)


def _named_pipes(folder: Folder) -> Iterator[Check]:
    path = folder.path / f".doctor-pipe-{os.urandom(6).hex()}"
    fds: list[int] = []
    try:
        os.mkfifo(path, 0o600)
        fds.append(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC))
        fds.append(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC))
        os.close(fds.pop(0))
        poll = select.poll()
        poll.register(fds[0], 0)
        granted = poll.poll(1000)
    except OSError as error:
        yield Check("named pipes", "fail", f"they do not work here ({error}): choose a folder on a local disk")
        return
    finally:
        for fd in fds:
            os.close(fd)
        path.unlink(missing_ok=True)
    if granted:
        yield Check("named pipes", "ok", "waiters are woken by releases and deaths")
    else:
        yield Check("named pipes", "warn", "a death is not told: waiters notice it within a second")


def _machine(folder: Folder) -> Iterator[Check]:
    marker = open_file(os.path.realpath(folder.path), "interlock", folder.sharing, create=False, write=False)
    try:
        written, links = os.pread(marker, MOST, 0), os.fstat(marker).st_nlink
    finally:
        os.close(marker)
    why = defect(folder.path, written, links) if written.startswith(MAGIC) else "has lost its marker: make it anew"
    if why:
        yield Check("machine", "fail", f"{folder.path} {why}")
    elif links > 1:
        yield Check("machine", "warn", "there is a copy of this folder made of hard links (cp -al): remove it")
    else:
        yield Check("machine", "ok", "one machine, one boot, one monotonic clock")


def _clock(folder: Folder) -> Iterator[Check]:
    ahead = folder.floor() / 1e6 - time.time()
    if ahead > 1:
        yield Check("clock", "warn", f"the clock is {ahead:.0f} s behind the last fence: fences count on from it")
    else:
        yield Check("clock", "ok", "fences follow the time of day, and never go back")


def _contents(folder: Folder, is_alive: Callable[[str], bool]) -> Iterator[Check]:
    foreign = [
        name for name in sorted(os.listdir(folder.path)) if name not in OURS and not name.startswith(".doctor")
    ]
    names = names_in(folder.using)
    dead = lines = 0
    for name in names:
        what, dying = _line(folder, name, is_alive)
        foreign += [f"using/{name}{what}"] * bool(what)
        lines += what == ""
        dead += dying
    known = set(names)
    for name in names_in(folder.pending):
        what = "" if name in known else " (nobody's)"
        foreign += [f"pending/{name}{odd}" for odd in [what or _pending(folder, name)] if odd]
    foreign += [f"alive/{name} ({kind})" for name, kind in _no_pipes(folder.alive)]
    if foreign:
        shown = ", ".join(foreign[:MOST_SHOWN]) + (", …" if len(foreign) > MOST_SHOWN else "")
        yield Check(
            "contents", "warn", f"{len(foreign)} foreign or damaged: {shown}; they stop no other name; remove them"
        )
    else:
        yield Check("contents", "ok", f"{lines} names, nothing foreign")
    if dead:
        yield Check("dead holders", "warn", f"{dead} claims of processes that died; the next who asks clears them")
    broken = sorted(folder.broken.iterdir()) if folder.broken.is_dir() else []
    if broken:
        yield Check("broken", "warn", f"{len(broken)} damaged line files lie in {folder.broken}: look, remove")


def _line(folder: Folder, name: str, is_alive: Callable[[str], bool]) -> tuple[str, int]:
    """Return what is odd about a file in using/, and how many of its holders are dead."""
    data, what = _read(folder, folder.using, name)
    if what:
        return what, 0
    key = key_in(data[:HEAD_MOST])
    if key is None or file_name(key) != name:
        return " (no line)" if data else "", 0
    head = data[22:27]
    start = int(head) if head.isdigit() else HEAD_MOST
    parsed = [parse(data[at : at + SLOT], 0) for at in range(start, len(data), SLOT)]
    dead = sum(slot is not None and slot.state == "using" and not is_alive(slot.alive) for slot in parsed)
    return (" (a claim that can't be read)" if None in parsed else ""), dead


def _pending(folder: Folder, name: str) -> str:
    """Return what is odd about a file in pending/."""
    data, what = _read(folder, folder.pending, name)
    return what or ("" if is_pending(data) else " (no line)")


def _read(folder: Folder, room: Path, name: str) -> tuple[bytes, str]:
    """Return what a file says, and why it can't be read."""
    try:
        return read_file(room, name, folder.sharing), ""
    except FileNotFoundError:
        return b"", ""  # removed meanwhile
    except OSError as error:
        return b"", f" ({error.strerror})"
    except StoreError as error:
        return b"", f" ({str(error).removeprefix(f'{room}/{name} ').partition(',')[0]})"


def _no_pipes(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield what lies in a folder and is no named pipe."""
    for name in names_in(folder):
        with contextlib.suppress(FileNotFoundError):
            mode = os.lstat(folder / name).st_mode
            if not stat.S_ISFIFO(mode):
                yield name, kind_of(mode)
