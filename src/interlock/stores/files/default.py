"""The folder of a user who names none: one for each user id, whatever the environment says.

A login shell has XDG_RUNTIME_DIR and cron has not, TMPDIR and HOME differ from service to service: two who chose by
them would lock different things.  Other places do not do: /run/user/UID goes away at logout, logind empties /dev/shm
(RemoveIPC), /run/lock is small and not everybody's, a home may be missing or on NFS.
"""

import os
import re
import stat
from pathlib import Path

from interlock.core.errors import StoreError

SHARED = "/tmp"
MOUNTS = Path("/proc/self/mountinfo")
_OWN_TMP = re.compile(r"systemd-private-|snap-private-tmp|/tmp-inst/")
"""In the root of the mount at /tmp: systemd's PrivateTmp=, snap, pam_namespace."""
_ELSEWHERE = "set INTERLOCK_URL (or connect(url), --store) to a folder that all who share the lock see, " \
    "e.g. file:///var/lib/app/locks"  # fmt: skip


def runtime_folder() -> str:
    """Return the folder of this user's locks, made if it is not there.

    Returns:
        /tmp/interlock-UID, of the effective user id.

    Raises:
        StoreError: it is not this user's own, or not the one that other programs of this user see.
    """
    if own_tmp(MOUNTS):
        raise StoreError(
            f"this service has a {SHARED} of its own (PrivateTmp=), which others do not see: {_ELSEWHERE}"
        )
    path = os.path.join(SHARED, f"interlock-{os.geteuid()}")
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise StoreError(f"the folder of this user's locks can't be made: {error}; {_ELSEWHERE}") from error
    try:
        found = os.lstat(path)
    except OSError as error:
        raise StoreError(f"the folder of this user's locks can't be looked at: {error}; {_ELSEWHERE}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise StoreError(f"{path} is no folder of this user's own: let its owner or root remove it, or {_ELSEWHERE}")
    if found.st_mode & 0o022:
        raise StoreError(f"others may write to {path}, and so take locks away: chmod 700 {path}, or {_ELSEWHERE}")
    return path


def own_tmp(mounts: Path) -> bool:
    """Tell whether this process is seen to have a /tmp of its own.

    Args:
        mounts: as /proc/self/mountinfo, see proc_pid_mountinfo(5).
    """
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return False
    roots = [fields[3] for fields in map(str.split, lines) if len(fields) > 4 and fields[4] == SHARED]
    return bool(roots) and _OWN_TMP.search(roots[-1]) is not None  # the last one covers those before
