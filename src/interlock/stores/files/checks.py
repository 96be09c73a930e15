"""The checks of `doctor` for a folder."""

import os
import stat
from collections.abc import Callable
from functools import partial

from interlock.core.claims import Check
from interlock.core.errors import StoreError
from interlock.core.line import QueuedClaim
from interlock.stores.files.folder import NAME, Folder, names_in
from interlock.stores.files.liveness import Liveness
from interlock.stores.files.machine import check_of
from interlock.stores.files.opening import failing, read_file
from interlock.stores.files.slots import FREE, HEAD_MOST, Slot, file_name, head_of, key_in, parse, raws_in
from interlock.stores.files.system import system

OWN_FILES = {NAME, "lines", "alive", "kept"}
MAX_FILES_SHOWN = 5


def examine(folder: Folder, liveness: Liveness) -> list[Check]:
    """Return the findings about a folder."""
    checks: dict[str, Callable[[], Check]] = {
        "liveness pipes": partial(_liveness_pipes, folder, liveness),
        "file system": partial(check_of, folder.path),
        "permissions": partial(_permissions, folder),
        "contents": partial(_contents, folder),
    }
    found = []
    for name, check in checks.items():
        try:
            with failing("The check failed"):
                found.append(check())
        except StoreError as error:
            found.append(Check(name, "fail", str(error)))
    return found


def _liveness_pipes(folder: Folder, liveness: Liveness) -> Check:
    """Check that every process with claims in the folder still has its liveness pipe there."""
    liveness.keep()
    places = [
        slot for name in names_in(folder.lines) for slot in _read(folder, name) if isinstance(slot, QueuedClaim)
    ]
    gone = {
        place.liveness_token
        for place in places
        if place.liveness_token and not os.path.lexists(folder.alive / place.liveness_token)
    }
    pids = sorted(pid for pid in {token.partition("-")[0] for token in gone} if system.is_running(pid))
    if pids:
        return Check(
            "liveness pipes",
            "warn",
            f"The pipes of {len(pids)} running processes were removed ({', '.join(pids[:MAX_FILES_SHOWN])}), so "
            f"their locks are void. Exclude the folder from cleaners (tmp cleaners, rm).",
        )
    return Check("liveness pipes", "ok", "Every running process with claims here has its pipe.")


def _permissions(folder: Folder) -> Check:
    folder.repair()
    for path in (folder.path, folder.lines, folder.alive):
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            return Check("permissions", "fail", f"This user cannot read and write {path}. Change its mode.")
    mode = folder.sharing.mode
    if mode & 0o002 and not mode & stat.S_ISVTX:
        return Check("permissions", "warn", f"Every user may write to {folder.path} and remove locks. Run chmod o-w.")
    shared = "Shared: every user with write access can block all others."
    return Check("permissions", "ok", shared if mode & 0o022 else "Readable and writable.")


def _contents(folder: Folder) -> Check:
    names = names_in(folder.lines)
    foreign = [name for name in names_in(folder.path) if name not in OWN_FILES]
    foreign += [
        f"lines/{name}" for name in names if not all(isinstance(slot, QueuedClaim) for slot in _read(folder, name))
    ]
    if foreign:
        shown = ", ".join(foreign[:MAX_FILES_SHOWN]) + (", …" if len(foreign) > MAX_FILES_SHOWN else "")
        text = f"{len(foreign)} files are foreign or unreadable: {shown}. They block no other name. Remove them."
        return Check("contents", "warn", text)
    return Check("contents", "ok", f"{len(names)} names, nothing foreign.")


def _read(folder: Folder, name: str) -> list[Slot]:
    """Return the claims of a file in lines/; a number if it is unreadable or foreign."""
    try:
        data = read_file(folder.lines, name, folder.sharing)
    except FileNotFoundError:
        return []  # removed in between
    except (OSError, StoreError):
        return [0]
    key = key_in(data[:HEAD_MOST])
    if key is None or file_name(key) != name:
        return [0] if data else []
    return [parse(raw) for raw in raws_in(data, len(head_of(key))) if not raw.startswith(FREE)]
