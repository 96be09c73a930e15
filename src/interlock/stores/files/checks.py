"""The checks of `doctor` for a folder: whether it can keep locks, and which foreign files are in it."""

import contextlib
import os
import stat
from collections.abc import Callable, Iterator

from interlock.core.claims import USING, Check
from interlock.core.errors import StoreError
from interlock.core.line import Place
from interlock.runtime._threads import poller
from interlock.stores.files.folder import Folder, names_in
from interlock.stores.files.liveness import Liveness, make_pipe, open_pipe
from interlock.stores.files.machine import LOCAL, NAME, file_system, is_guest, is_network, join_marker
from interlock.stores.files.opening import OpenFile, failed, kind_of, read_file
from interlock.stores.files.slots import FREE, HEAD_MOST, SLOT, file_name, key_in, parse, slots_start

OURS = {NAME, "lines", "alive", "kept"}
MOST_SHOWN = 5
REMEDY = "exclude the folder from whatever cleans up there (tmp cleaners, rm)"
Found = Iterator[Check]


def examine(folder: Folder, liveness: Liveness) -> list[Check]:
    """Return the findings about a folder, and about this process in it."""
    checks: dict[str, Callable[[], Found]] = {
        "liveness pipes": lambda: _liveness(folder, liveness),
        "file system": lambda: _file_system(folder),
        "permissions": lambda: _permissions(folder),
        "named pipes": lambda: _named_pipes(folder),
        "machine": lambda: _machine(folder),
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


def _liveness(folder: Folder, liveness: Liveness) -> Found:
    """Check that every process with claims in the folder still has its liveness pipe there."""
    if not liveness.keep() or liveness.was_lost:
        liveness.was_lost = False
        yield Check(
            "liveness pipe", "warn", f"this process's own was removed from alive/, its locks were lost: {REMEDY}"
        )
    places = [place for name in names_in(folder.lines) for place in _read(folder, name)[0]]
    gone = {place.alive for place in places if place.alive and not os.path.lexists(folder.alive / place.alive)}
    pids = sorted(pid for pid in {token.partition("-")[0] for token in gone} if os.path.exists(f"/proc/{pid}"))
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


def _named_pipes(folder: Folder) -> Found:
    path = folder.path.resolve() / f".doctor-{os.urandom(6).hex()}"  # resolved: `open_folder` follows no link
    made = OpenFile(path, make_pipe(path))
    try:
        writer = open_pipe(path, os.O_WRONLY)
    finally:
        made.remove()
    poll = poller()
    poll.register(writer.fd, 0)
    told = poll.poll(1000)
    writer.close()
    if told:
        yield Check("named pipes", "ok", "waiters are woken by releases and deaths")
    else:
        yield Check("named pipes", "warn", "a death is not told: waiters notice it within a second")


def _machine(folder: Folder) -> Found:
    """Check, as a process that joins now does, OS locks, boot and clock against the processes that use the folder."""
    marker = join_marker(folder.path, folder.sharing, wait=False)
    if marker.links() > 1:
        yield Check("machine", "warn", "there is a copy of this folder made of hard links (cp -al): remove it")
    else:
        yield Check("machine", "ok", "one machine, one boot, one monotonic clock; OS locks exclude")
    marker.close()


def _contents(folder: Folder) -> Found:
    names = names_in(folder.lines)
    foreign = [
        name for name in sorted(os.listdir(folder.path)) if name not in OURS and not name.startswith(".doctor")
    ]
    foreign += [f"lines/{name}{odd}" for name in names if (odd := _read(folder, name)[1])]
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


def _read(folder: Folder, name: str) -> tuple[list[Place], str]:
    """Return the claims in a file in lines/, and a note of what is wrong with the file; "" if nothing is."""
    try:
        data = read_file(folder.lines, name, folder.sharing)
    except FileNotFoundError:
        return [], ""  # removed meanwhile
    except OSError as error:
        return [], f" ({error.strerror})"
    except StoreError as error:
        return [], f" ({str(error).removeprefix(f'{folder.lines}/{name} ').partition(',')[0]})"
    key = key_in(data[:HEAD_MOST])
    if key is None or file_name(key) != name:
        return [], " (no line)" if data else ""
    raws = [data[at : at + SLOT] for at in range(slots_start(data), len(data), SLOT)]
    slots = [parse(raw) for raw in raws if not raw.startswith(FREE)]
    return [slot for slot in slots if isinstance(slot, Place)], " (a claim that can't be read)" if 0 in slots else ""
