"""file:///folder: locks between the processes of one machine, on plain files."""

try:
    import fcntl  # noqa: F401 - whether this is a POSIX system
except ModuleNotFoundError:
    from interlock.core.errors import StoreError

    raise StoreError(
        "file://, the default store, needs a POSIX system for its locks and named pipes. Pass the URL of a server, "
        "or memory://, or set INTERLOCK_URL."
    ) from None

import contextlib
import os
import re
import stat
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, unquote, unquote_to_bytes

from interlock.core.errors import InvalidArgument, StoreError
from interlock.core.options import path_url, read_options
from interlock.core.queue import ALL
from interlock.core.redaction import masked
from interlock.runtime import clock
from interlock.storekit.blocking import BlockingStore
from interlock.stores.files._sync.queue import FileQueue
from interlock.stores.files.folder import Folder
from interlock.stores.files.machine import allowed_in, mount_of
from interlock.stores.files.opening import failing
from interlock.stores.files.steps import queue_on, sweep

if TYPE_CHECKING:
    from interlock.stores.files._async.queue import AsyncFileQueue


def folder_meant(path: str) -> str:
    """Return the URL that a path without its first slash probably means."""
    top = path.partition("/")[0]
    if top not in ("", ".", "..", "~") and os.path.isdir(f"/{top}"):
        return path_url(f"/{path}")
    return path_url(os.path.abspath(os.path.expanduser(path)))


def _mode(name: str, text: str) -> int:
    if not re.fullmatch("0?[0-3]?7[07][07]", text):
        raise InvalidArgument(
            f"{name}={text!r}: write 0700 (this user only), 0770 or 2770 (a group), 0777 or 1777 (everybody). Each "
            f"user of the locks needs all rights in their folder."
        )
    return int(text, 8)


class FileStore(BlockingStore):
    """A store in a folder of a local file system.

    Args:
        path: the folder; created if it does not exist.
        mode, allow: as for `Folder`.

    Raises:
        InvalidArgument: the path is not absolute.
        StoreError: the folder cannot keep locks; the message gives the next step.
    """

    features = ALL
    frees_at_death = True  # the kernel releases the flock of the liveness pipe
    now = staticmethod(clock.now)

    def __init__(self, path: str, mode: int | None = None, allow: str = "") -> None:
        self._where = (path, mode, allow)
        sweep(Folder(*self._where))  # an unused store keeps no descriptor open

    @classmethod
    def from_url(cls, url: SplitResult) -> "FileStore":
        """Connect to file:///folder, file:///folder?mode=0770, or file:///folder?allow=virtiofs."""
        if url.netloc not in ("", "localhost") or url.fragment:
            shown = masked(url.geturl())
            hides = "***" in shown or not url.netloc
            meant = "file:///var/lib/locks" if hides else folder_meant(unquote(url.netloc + url.path))
            raise InvalidArgument(f"{shown!r}: write three slashes and a folder. Did you mean {meant}?")
        path = unquote_to_bytes(url.path.encode("utf-8", "surrogateescape"))  # because a file name need not be UTF-8
        given = parse_qsl(url.query, keep_blank_values=True)
        return cls(os.fsdecode(path), **read_options(given, {"mode": _mode, "allow": allowed_in}, "file:///…"))

    def queue(self) -> FileQueue:
        """See `Store.queue`."""
        return queue_on(Folder(*self._where), lambda lines: FileQueue(lines, lines))

    def aqueue(self) -> "AsyncFileQueue":
        """See `Store.aqueue`."""
        with failing("Locks are unavailable"):
            from interlock.storekit.task_steps import TaskSteps  # only with an event loop: loads asyncio
            from interlock.stores.files._async.queue import AsyncFileQueue

        return queue_on(Folder(*self._where), lambda lines: AsyncFileQueue(lines, TaskSteps(lines)))


SHARED = "/tmp"
_OWN_TMP = re.compile(r"systemd-private-|snap-private-tmp|/tmp-inst/")
"""Matches the root of a private mount at /tmp: systemd's PrivateTmp=, snap, pam_namespace."""
_ELSEWHERE = "set INTERLOCK_URL (or connect(url), --store) to a folder that all users of the lock see, " \
    "e.g. file:///var/lib/app/locks."  # fmt: skip


def runtime_folder() -> str:
    """Return the default folder of this user's locks; create it if it does not exist.

    Returns:
        The folder /tmp/interlock-UID, with the effective user id.

    Raises:
        StoreError: another user owns the folder or may write to it, or this process has a private /tmp.
    """
    path = os.path.join(SHARED, f"interlock-{os.geteuid()}")
    try:
        if _OWN_TMP.search(mount_of(SHARED).root):
            raise StoreError(
                f"This service has a private {SHARED} (PrivateTmp=), invisible to others. To share "
                f"locks, {_ELSEWHERE}"
            )
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        found = os.lstat(path)
    except OSError as error:
        raise StoreError(f"Cannot create the folder of this user's locks: {error}. Or {_ELSEWHERE}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise StoreError(f"{path} is not a folder of this user. Let its owner or root remove it, or {_ELSEWHERE}")
    if found.st_mode & 0o022:
        raise StoreError(f"Others may write to {path} and remove locks. Run chmod 700 {path}, or {_ELSEWHERE}")
    return path
