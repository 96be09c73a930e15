"""file:///folder - locks between the processes of one machine, on plain files."""

import contextlib
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote

from interlock.core.claims import Check, ClaimView
from interlock.core.effects import Call, Op
from interlock.core.errors import InvalidArgument, StoreError
from interlock.core.redaction import masked
from interlock.stores.files.failures import failing
from interlock.stores.files.folder import Folder
from interlock.stores.files.options import options
from interlock.stores.files.queue import FileQueue
from interlock.stores.files.wakeups import ThreadFileWakeup

if TYPE_CHECKING:
    from interlock.stores.files.tasks import TaskFileWakeup

SWEEP = 50


class FileStore(FileQueue):
    """A store in a folder of a local file system.

    Args:
        path: the folder; made if it is not there.
        mode, allow: as for `Folder`.

    Raises:
        InvalidArgument: not an absolute path.
        StoreError: the folder can't keep locks; the message says what to do.
    """

    frees_at_death = True  # the kernel takes the liveness pipe's lock away

    def __init__(self, path: str, mode: int | None = None, allow: str = "") -> None:
        super().__init__(Folder(path, mode, allow))
        try:
            with contextlib.suppress(OSError):
                self.sweep(SWEEP)
        except StoreError:
            self.close()
            raise

    @classmethod
    def from_url(cls, url: SplitResult) -> "FileStore":
        """Connect to file:///folder, file:///folder?mode=0770, or file:///folder?allow=virtiofs."""
        if url.netloc not in ("", "localhost") or url.fragment:
            shown = masked(url.geturl())
            hides = "***" in shown or not url.netloc
            meant = "file:///var/lib/locks" if hides else f"file:///{url.netloc}{url.path}"
            raise InvalidArgument(f"{shown!r}: write three slashes and a folder; did you mean {meant}?")
        return cls(unquote(url.path), **options(url.query))

    @classmethod
    def from_url_for_tasks(cls, url: SplitResult) -> "FileStore":
        """As `from_url`; what tasks wait on is imported by now, and not by the first of them that waits."""
        from interlock.stores.files import tasks  # noqa: F401

        return cls.from_url(url)

    def look(self, key: str) -> Op[list[ClaimView]]:
        """As `Queue.look`."""
        with failing("the lines can't be looked at"):
            from interlock.stores.files import views  # programs that lock do not look: they start faster

        found: list[ClaimView] = yield Call(views.look, (self.folder, self.liveness().is_alive, key))
        return found

    def namespaces(self) -> Op[list[str]]:
        """As `BaseStore.namespaces`."""
        with failing("the lines can't be looked at"):
            from interlock.stores.files import views

        found: list[str] = yield Call(views.namespaces, (self.folder, self.liveness().is_alive))
        return found

    def sweep(self, most: int) -> int:
        """As `OpenFolder.sweep`."""
        return self.opened.sweep(most)

    def thread_wakeup(self) -> ThreadFileWakeup:
        """Return a wake-up for the calling thread."""
        return self.opened.wait_with(ThreadFileWakeup, self)

    def task_wakeup(self) -> "TaskFileWakeup":
        """Return a wake-up for the calling task."""
        with failing("no task can wait"):
            from interlock.stores.files.tasks import TaskFileWakeup  # only programs with an event loop load asyncio

        return self.opened.wait_with(TaskFileWakeup, self)

    def doctor(self) -> list[Check]:
        """As `Store.doctor`."""
        with failing("nothing can be found out"):
            from interlock.stores.files import checks  # programs that lock do not look: they start faster

        return checks.examine(self.folder, self.liveness())
