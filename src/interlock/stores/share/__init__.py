"""share:///folder: locks in a folder that several machines share (NFS, Lustre, SMB, ...), by renames."""

import os
from typing import Self
from urllib.parse import SplitResult, parse_qsl, unquote_to_bytes

from interlock.core.claims import Check
from interlock.core.errors import InvalidArgument, StoreError
from interlock.core.options import flag_in, read_options
from interlock.core.queue import ALL
from interlock.core.redaction import masked
from interlock.storekit._sync.step_queue import StepStore
from interlock.storekit.blocking import BlockingStore
from interlock.stores.share.system import System


class ShareStore(BlockingStore):
    """A store in a shared folder.

    Args:
        folder: the absolute path of an existing folder.
        one_clock: True if the file server sets the times of all files, so that one look can show that a lease has
            expired.
        system: performs the system calls; tests pass another one to inject faults.

    Raises:
        StoreError: this is not a POSIX system.
    """

    features = ALL
    shortest_ttl = 10.0  # a file server that is busy or fails over does not reply for seconds
    default_ttl = 60.0

    def __init__(self, folder: str, one_clock: bool = False, system: System | None = None) -> None:
        if os.name != "posix":
            raise StoreError(
                "share:// does not support Windows: renames on a network share were not tested there. Use a server, "
                "such as redis://."
            )
        self._folder, self._one_clock, self._system = folder, one_clock, system or System()

    @classmethod
    def from_url(cls, url: SplitResult) -> Self:
        """Connect to share:///folder, or share:///folder?one_clock=true."""
        path = os.fsdecode(unquote_to_bytes(url.path.encode("utf-8", "surrogateescape")))
        if url.netloc not in ("", "localhost") or url.fragment or not path.strip("/") or "\0" in path:
            raise InvalidArgument(
                f"{masked(url.geturl())!r}: mount the file system, and write share:// and the absolute path of a "
                f"folder in it, such as share:///mnt/cluster/locks."
            )
        given = parse_qsl(url.query, keep_blank_values=True)
        return cls(path, **read_options(given, {"one_clock": flag_in}, "share:///…"))

    def steps(self) -> StepStore:
        """See `BlockingStore.steps`."""
        from interlock.stores.share.lines import ShareLines, ShareSteps

        return ShareSteps(ShareLines(self._folder, self._one_clock, self._system))

    def race(self, clients: int, rounds: int) -> list[Check]:
        """Test whether only one of many concurrent renames of one file succeeds.

        Args:
            clients: the number of threads that rename.
            rounds: the number of rounds.

        Raises:
            StoreError: the folder is unusable.
        """
        from interlock.stores.share.checks import race
        from interlock.stores.share.folder import SharedFolder

        return [race(SharedFolder(self._folder, self._system), clients, rounds)]
