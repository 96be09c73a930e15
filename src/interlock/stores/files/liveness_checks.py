"""doctor: does every process that has claims in the folder still have its liveness pipe there?"""

import os
from collections.abc import Iterator

from interlock.core.claims import Check
from interlock.stores.files.folder import Folder, names_in
from interlock.stores.files.keys import key_of
from interlock.stores.files.liveness import Liveness
from interlock.stores.files.views import slots

REMEDY = "exclude the folder from whatever cleans up there (tmp cleaners, rm)"


def examine(folder: Folder, liveness: Liveness) -> Iterator[Check]:
    """Yield the findings about liveness pipes; a process's own one is made again if it was gone."""
    if not liveness.keep():
        yield Check(
            "liveness pipe", "warn", f"this process's own was removed from alive/, its locks were lost: {REMEDY}"
        )
    unseen = sorted({token for token in _tokens(folder) if _is_missing(folder, token)})
    if unseen:
        pids = ", ".join(token.partition("-")[0] for token in unseen[:5])
        yield Check(
            "liveness pipes",
            "warn",
            f"those of {len(unseen)} running processes were removed ({pids}), their locks are void: {REMEDY}",
        )
    else:
        yield Check("liveness pipes", "ok", "every running process with claims here has its own")


def _tokens(folder: Folder) -> set[str]:
    keys = {key for name in names_in(folder.using) if (key := key_of(folder, name)) is not None}
    return {slot.alive for key in keys for slot in slots(folder, key, lambda token: True)}


def _is_missing(folder: Folder, token: str) -> bool:
    """Tell whether a process runs, but not its liveness_pipe."""
    pid = token.partition("-")[0]
    return not os.path.lexists(folder.alive / token) and pid.isdigit() and os.path.exists(f"/proc/{int(pid)}")
