"""file:///folder: locks between the processes of one machine, on plain files."""

import os
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, unquote, unquote_to_bytes

from interlock.core.errors import InvalidArgument
from interlock.core.options import path_url, read_options
from interlock.core.queue import ALL
from interlock.core.redaction import masked
from interlock.runtime import clock
from interlock.storekit.blocking import BlockingStore
from interlock.stores.files._sync.queue import FileQueue
from interlock.stores.files.folder import Folder
from interlock.stores.files.machine import allowed_in
from interlock.stores.files.opening import failing
from interlock.stores.files.steps import queue_on, sweep
from interlock.stores.files.system import system

if TYPE_CHECKING:
    from interlock.stores.files._async.queue import AsyncFileQueue


folder_meant = system.folder_meant
"""Return the URL that a path without its first slash probably means."""


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
            meant = path_url(system.EXAMPLE) if hides else folder_meant(unquote(url.netloc + url.path))
            raise InvalidArgument(f"{shown!r}: write three slashes and a folder. Did you mean {meant}?")
        path = unquote_to_bytes(url.path.encode("utf-8", "surrogateescape"))  # because a file name need not be UTF-8
        given = parse_qsl(url.query, keep_blank_values=True)
        return cls(
            system.path_in_url(os.fsdecode(path)),
            **read_options(given, {"mode": system.mode_in, "allow": allowed_in}, "file:///…"),
        )

    def queue(self) -> FileQueue:
        """See `Store.queue`."""
        return queue_on(Folder(*self._where), lambda lines: FileQueue(lines, lines))

    def aqueue(self) -> "AsyncFileQueue":
        """See `Store.aqueue`."""
        with failing("Locks are unavailable"):
            from interlock.storekit.task_steps import TaskSteps  # only with an event loop: loads asyncio
            from interlock.stores.files._async.queue import AsyncFileQueue

        return queue_on(Folder(*self._where), lambda lines: AsyncFileQueue(lines, TaskSteps(lines)))


runtime_folder = system.default_folder
"""Return the default folder of this user's locks; create it if it does not exist."""
