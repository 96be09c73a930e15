"""doctor: is this folder fit to keep locks, and what lies in it that should not?"""

import contextlib
import fcntl
import os
import stat
from collections.abc import Callable, Iterator

from interlock.core.claims import MICROS, USING, Check
from interlock.core.errors import StoreError
from interlock.core.line import Place
from interlock.runtime import clock
from interlock.runtime.polling import poller
from interlock.stores.files.folder import Folder, names_in
from interlock.stores.files.liveness import Liveness
from interlock.stores.files.machine import LOCAL, MAGIC, MOST, defect, file_system, is_guest, is_network
from interlock.stores.files.opening import NOFOLLOW, failed, kind_of, open_file, read_file
from interlock.stores.files.slots import FREE, HEAD_MOST, SLOT, file_name, key_in, parse, slots_start

OURS = {"interlock", "fences", "lines", "alive", "broken"}
MOST_SHOWN = 5
REMEDY = "exclude the folder from whatever cleans up there (tmp cleaners, rm)"
Found = Iterator[Check]


def examine(folder: Folder, liveness: Liveness, places: Callable[[], list[Place]]) -> list[Check]:
    """Return the findings about a folder, and about this process in it.

    Args:
        folder, liveness: of this process.
        places: returns all claims that can be read.
    """
    checks: dict[str, Callable[[], Found]] = {
        "liveness pipes": lambda: _liveness(folder, liveness, places()),
        "file system": lambda: _file_system(folder),
        "permissions": lambda: _permissions(folder),
        "OS locks": lambda: _os_locks(folder),
        "named pipes": lambda: _named_pipes(folder),
        "machine": lambda: _machine(folder),
        "clock": lambda: _clock(folder),
        "contents": lambda: _contents(folder),
    }
    found: list[Check] = []
    for name, check in checks.items():
        try:
            found += check()
        except OSError as error:
            found.append(Check(name, "fail", str(failed("it can't be found out", error))))
        except StoreError as error:
            found.append(Check(name, "fail", str(error)))
    return found


def _liveness(folder: Folder, liveness: Liveness, places: list[Place]) -> Found:
    """Does every process that has claims in the folder still have its liveness pipe there?"""
    if not liveness.keep() or liveness.was_lost:
        liveness.was_lost = False
        yield Check(
            "liveness pipe", "warn", f"this process's own was removed from alive/, its locks were lost: {REMEDY}"
        )
    tokens = {place.alive for place in places if place.alive}
    gone = {token.partition("-")[0] for token in tokens if not os.path.lexists(folder.alive / token)}
    pids = [pid for pid in sorted(gone) if pid.isdigit() and os.path.exists(f"/proc/{int(pid)}")]
    if pids:
        some = ", ".join(pids[:MOST_SHOWN])
        yield Check(
            "liveness pipes",
            "warn",
            f"those of {len(pids)} running processes were removed ({some}), their locks are void: {REMEDY}",
        )
    else:
        yield Check("liveness pipes", "ok", "every running process with claims here has its own")
    dead = sum(place.state == USING and place.alive != "" and not liveness.is_alive(place.alive) for place in places)
    if dead:
        yield Check("dead holders", "warn", f"{dead} claims of processes that died; the next who asks clears them")


def _file_system(folder: Folder) -> Found:
    kind = file_system(folder.path)
    if is_network(kind):
        yield Check("file system", "fail", f"{kind} reaches several machines: choose a folder on a local disk")
    elif is_guest(kind) or kind not in LOCAL:
        yield Check(
            "file system", "warn", f"{kind} may reach others than this machine, who do not see its locks: be sure"
        )
    else:
        yield Check("file system", "ok", f"{folder.path} lies on {kind}")


def _permissions(folder: Folder) -> Found:
    for path in (folder.path, folder.lines, folder.alive):
        if not os.path.lexists(path):
            yield Check("permissions", "warn", f"{path} is missing, and made again when it is needed: {REMEDY}")
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


def _os_locks(folder: Folder) -> Found:
    path = folder.path / f".doctor-{os.urandom(6).hex()}"
    with contextlib.ExitStack() as stack:
        fds = []
        for flags in (os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_RDWR):
            fds.append(os.open(path, flags | NOFOLLOW | os.O_CLOEXEC, 0o600))
            stack.callback(os.close, fds[-1])
        stack.callback(os.unlink, path)
        try:
            fcntl.flock(fds[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(fds[1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield Check("OS locks", "ok", "flock excludes")
        except OSError as error:
            yield Check("OS locks", "fail", f"flock does not work here ({error}): choose a folder on a local disk")
        else:
            yield Check("OS locks", "fail", "flock does not exclude here: choose a folder on a local disk")


def _named_pipes(folder: Folder) -> Found:
    path = folder.path / f".doctor-pipe-{os.urandom(6).hex()}"
    with contextlib.ExitStack() as stack:
        try:
            os.mkfifo(path, 0o600)
            stack.callback(os.unlink, path)
            reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK | NOFOLLOW | os.O_CLOEXEC)
            closing = stack.enter_context(contextlib.ExitStack())
            closing.callback(os.close, reader)
            writer = os.open(path, os.O_WRONLY | os.O_NONBLOCK | NOFOLLOW | os.O_CLOEXEC)
            stack.callback(os.close, writer)
            closing.close()
            poll = poller()
            poll.register(writer, 0)
            told = poll.poll(1000)
        except OSError as error:
            yield Check("named pipes", "fail", f"they do not work here ({error}): choose a folder on a local disk")
            return
    if told:
        yield Check("named pipes", "ok", "waiters are woken by releases and deaths")
    else:
        yield Check("named pipes", "warn", "a death is not told: waiters notice it within a second")


def _machine(folder: Folder) -> Found:
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


def _clock(folder: Folder) -> Found:
    ahead = folder.floor() / MICROS - clock.time_of_day()
    if ahead > 1:
        yield Check("clock", "warn", f"the clock is {ahead:.0f} s behind the last fence: fences count on from it")
    else:
        yield Check("clock", "ok", "fences follow the time of day, and never go back")


def _contents(folder: Folder) -> Found:
    foreign = [
        name for name in sorted(os.listdir(folder.path)) if name not in OURS and not name.startswith(".doctor")
    ]
    names = names_in(folder.lines)
    foreign += [f"lines/{name}{odd}" for name in names if (odd := _oddity(folder, name))]
    for name in names_in(folder.alive):
        with contextlib.suppress(FileNotFoundError):
            mode = os.lstat(folder.alive / name).st_mode
            if not stat.S_ISFIFO(mode):
                foreign.append(f"alive/{name} ({kind_of(mode)})")
    if foreign:
        shown = ", ".join(foreign[:MOST_SHOWN]) + (", …" if len(foreign) > MOST_SHOWN else "")
        yield Check(
            "contents", "warn", f"{len(foreign)} foreign or damaged: {shown}; they stop no other name; remove them"
        )
    else:
        yield Check("contents", "ok", f"{len(names)} names, nothing foreign")
    broken = names_in(folder.broken)
    if broken:
        yield Check("broken", "warn", f"{len(broken)} damaged line files lie in {folder.broken}: look, remove")


def _oddity(folder: Folder, name: str) -> str:
    """Return what is odd about a file in lines/; "" if nothing is."""
    try:
        data = read_file(folder.lines, name, folder.sharing)
    except FileNotFoundError:
        return ""  # removed meanwhile
    except OSError as error:
        return f" ({error.strerror})"
    except StoreError as error:
        return f" ({str(error).removeprefix(f'{folder.lines}/{name} ').partition(',')[0]})"
    key = key_in(data[:HEAD_MOST])
    if key is None or file_name(key) != name:
        return " (no line)" if data else ""
    slots = [data[at : at + SLOT] for at in range(slots_start(data), len(data), SLOT)]
    unread = any(parse(raw) == 0 for raw in slots if not raw.startswith(FREE))
    return " (a claim that can't be read)" if unread else ""
