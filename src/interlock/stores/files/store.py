"""file:///folder - locks between the processes of one machine, on plain files."""

import contextlib
import os
from collections.abc import Callable
from typing import Any
from urllib.parse import SplitResult, unquote_to_bytes

from interlock.core.errors import InvalidArgument
from interlock.core.redaction import masked
from interlock.core.store import ALL, Feature
from interlock.runtime import clock
from interlock.stores.files.failures import failing
from interlock.stores.files.options import folder_meant, options
from interlock.stores.files.steps import FileSteps, close_if_unused, open_steps, use


class FileStore:
    """A store in a folder of a local file system.

    Args:
        path: the folder; made if it is not there.
        mode, allow: as for `Folder`.

    Raises:
        InvalidArgument: not an absolute path.
        StoreError: the folder can't keep locks; the message says what to do.
    """

    features: frozenset[Feature] = ALL
    frees_at_death = True  # the kernel takes the liveness pipe's lock away
    in_process = False
    now = staticmethod(clock.now)

    def __init__(self, path: str, mode: int | None = None, allow: str = "") -> None:
        self._where = (path, mode, allow)
        self._steps = open_steps(*self._where)
        with contextlib.suppress(OSError):
            self._steps.sweep()
        close_if_unused(self._steps)  # so that nothing is open of a store that nobody uses

    @classmethod
    def from_url(cls, url: SplitResult) -> "FileStore":
        """Connect to file:///folder, file:///folder?mode=0770, or file:///folder?allow=virtiofs."""
        if url.netloc not in ("", "localhost") or url.fragment:
            shown = masked(url.geturl())
            hides = "***" in shown or not url.netloc
            meant = "file:///var/lib/locks" if hides else folder_meant(url.netloc + url.path)
            raise InvalidArgument(f"{shown!r}: write three slashes and a folder; did you mean {meant}?")
        path = unquote_to_bytes(url.path.encode("utf-8", "surrogateescape"))  # names need not be UTF-8
        return cls(os.fsdecode(path), **options(url.query))

    def queue(self) -> Any:
        """As `Store.queue`."""
        with failing("nothing can be locked"):
            from interlock.stores.files._sync.queue import FileQueue

        return self._use(FileQueue)

    def aqueue(self) -> Any:
        """As `Store.aqueue`."""
        with failing("nothing can be locked"):
            from interlock.stores.files._async.queue import AsyncFileQueue  # only with an event loop: loads asyncio

        return self._use(AsyncFileQueue)

    def _use(self, kind: Callable[[FileSteps], Any]) -> Any:
        queue, self._steps = use(self._steps, self._where, kind)
        return queue
