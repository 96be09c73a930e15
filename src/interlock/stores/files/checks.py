"""doctor: is this folder fit to keep locks, and what lies in it that should not?"""

import fcntl
import os
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from interlock.claims import Check
from interlock.stores.files.folder import NETWORK, VERSION, Folder, boot_id, file_name, file_system
from interlock.stores.files.linefile import HEAD_MOST, key_in
from interlock.stores.files.record import SLOT, parse

OURS = {"interlock", "fences", "using", "pending", "alive", "broken"}
MOST_SHOWN = 5


def examine(folder: Folder, is_alive: Callable[[str], bool]) -> list[Check]:
    """Return the findings about a folder."""
    return [
        _file_system(folder),
        *_permissions(folder),
        _os_locks(folder),
        _named_pipes(folder),
        _machine(folder),
        _clock(folder),
        *_contents(folder, is_alive),
    ]


def _file_system(folder: Folder) -> Check:
    kind = file_system(folder.path)
    if kind in NETWORK:
        return Check("file system", "fail", f"{kind} reaches several machines: choose a folder on a local disk")
    return Check("file system", "ok", f"{folder.path} lies on {kind}")


def _permissions(folder: Folder) -> Iterator[Check]:
    for path in (folder.path, folder.using, folder.pending, folder.alive):
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            yield Check("permissions", "fail", f"{path} can't be read and written by this user: change its mode")
            return
    mode = folder.path.stat().st_mode
    if mode & 0o002 and not mode & 0o1000:
        yield Check("permissions", "warn", f"every user may write to {folder.path} and take locks away: chmod o-w")
    else:
        yield Check("permissions", "ok", "readable and writable")


def _os_locks(folder: Folder) -> Check:
    path = folder.path / f".doctor-{os.getpid()}"
    first = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    second = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return Check("OS locks", "ok", "flock excludes")
        return Check("OS locks", "fail", "flock does not exclude here: choose a folder on a local disk")
    except OSError as error:
        return Check("OS locks", "fail", f"flock does not work here ({error}): choose a folder on a local disk")
    finally:
        os.close(first)
        os.close(second)
        os.unlink(path)


def _named_pipes(folder: Folder) -> Check:
    path = folder.path / f".doctor-pipe-{os.getpid()}"
    try:
        os.mkfifo(path)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        writer = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.close(reader)
        poll = select.poll()
        poll.register(writer, 0)
        told = poll.poll(1000)
        os.close(writer)
    except OSError as error:
        return Check("named pipes", "fail", f"they do not work here ({error}): choose a folder on a local disk")
    finally:
        path.unlink(missing_ok=True)
    if told:
        return Check("named pipes", "ok", "waiters are woken by releases and deaths")
    return Check("named pipes", "warn", "a death is not told: waiters notice it within a second")


def _machine(folder: Folder) -> Check:
    written = (folder.path / "interlock").read_bytes()
    if written != VERSION + b"boot=" + boot_id().encode() + b"\n":
        return Check("machine", "fail", "the folder is used by another machine or boot: give each its own")
    try:
        offsets = Path("/proc/self/timens_offsets").read_text().split()
    except OSError:
        offsets = []
    if any(word.isdigit() and int(word) for word in offsets[1:3]):
        return Check("machine", "fail", "this process lives in a time namespace: its clock is not that of the others")
    return Check("machine", "ok", "one machine, one boot, one monotonic clock")


def _clock(folder: Folder) -> Check:
    ahead = folder.floor() / 1e6 - time.time()
    if ahead > 1:
        return Check("clock", "warn", f"the clock is {ahead:.0f} s behind the last fence: fences count on from it")
    return Check("clock", "ok", "fences follow the time of day, and never go back")


def _contents(folder: Folder, is_alive: Callable[[str], bool]) -> Iterator[Check]:
    foreign = [name for name in os.listdir(folder.path) if name not in OURS and not name.startswith(".doctor")]
    dead = lines = 0
    for path in sorted(folder.using.iterdir()):
        try:
            data = path.read_bytes()
        except OSError as error:
            foreign.append(f"using/{path.name} ({error.strerror})")
            continue
        key = key_in(data[:HEAD_MOST])
        if key is None or file_name(key) != path.name:
            if data:
                foreign.append(f"using/{path.name}")
            continue
        lines += 1
        head = int(data[22:27])
        parsed = [parse(data[at : at + SLOT], 0) for at in range(head, len(data), SLOT)]
        if None in parsed:
            foreign.append(f"using/{path.name} (a claim that can't be read)")
        dead += sum(slot is not None and slot.state == "using" and not is_alive(slot.alive) for slot in parsed)
    known = {path.name for path in folder.using.iterdir()}
    foreign += [f"pending/{path.name}" for path in sorted(folder.pending.iterdir()) if path.name not in known]
    if foreign:
        shown = ", ".join(foreign[:MOST_SHOWN]) + (", …" if len(foreign) > MOST_SHOWN else "")
        yield Check("contents", "warn", f"{len(foreign)} foreign or damaged: {shown}; they stop nobody; remove them")
    else:
        yield Check("contents", "ok", f"{lines} names, nothing foreign")
    if dead:
        yield Check("dead holders", "warn", f"{dead} claims of processes that died; the next who asks clears them")
    broken = sorted(folder.broken.iterdir()) if folder.broken.is_dir() else []
    if broken:
        yield Check("broken", "warn", f"{len(broken)} damaged line files lie in {folder.broken}: look, remove")
