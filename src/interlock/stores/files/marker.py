"""The marker of a folder: the file `interlock`, which says whose locks lie there.

    interlock files 2
    boot=6f3c…        of which boot of which machine its processes are
    clock=0           how far their monotonic clock is ahead of the machine's (time namespaces)
    folder=2621442    the inode of the folder: a copy whose files are hard links to these is told from it

All connections to the folder share a lock on it; one that finds it unlocked is alone, and writes it anew.
"""

import errno
import fcntl
import os
import time
from pathlib import Path

from interlock.core.errors import StoreError
from interlock.stores.files.machine import boot_id, clock
from interlock.stores.files.opening import ROUNDS, NotOurs, OpenFile, Sharing, open_file, put

NAME = "interlock"
MAGIC = b"interlock files "
VERSION = MAGIC + b"2\n"
MOST = 400  # bytes
WAITS = 500  # of 0.01 s
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


class MarkerTaken(StoreError):
    """Somebody else has the marker locked exclusively, which should last no longer than a moment."""


def text_here(path: Path) -> bytes:
    """Return what the marker of a folder should say, for this process.

    Raises:
        OSError: it can't be found out.
    """
    inode = os.stat(path).st_ino
    return VERSION + f"boot={boot_id()}\nclock={clock()}\nfolder={inode}\n".encode()


def defect(path: Path, written: bytes, links: int) -> str:
    """Return why a folder whose marker says `written` can't be shared with those who use it; "" if it can.

    Args:
        path: the folder.
        written: what its marker says.
        links: how many names the marker has.
    """
    here = _facts(text_here(path))
    there = _facts(written)
    if links > 1 and there.get("folder") != here["folder"]:
        return "is a copy made of hard links (cp -al) of another folder: remove the copy, and make it without links"
    if not written.startswith(VERSION):
        return "is used by another version of interlock: end its processes, or use another folder"
    if there.get("boot") != here["boot"]:
        return (
            f"is used by another machine or boot ({there.get('boot')}, here {here['boot']}): its processes can't be "
            f"seen from here; give each machine a folder of its own"
        )
    if there.get("clock", "0") != here["clock"]:
        return (
            f"is used in another time namespace (its clock is ahead by {there.get('clock', '0')}, here by "
            f"{here['clock']}): leases can't be compared; give each time namespace a folder of its own"
        )
    return ""


def _facts(text: bytes) -> dict[str, str]:
    lines = text.decode(errors="replace").splitlines()[1:]
    return {key: fact for key, _, fact in (line.partition("=") for line in lines)}


def join_marker(path: Path, sharing: Sharing, *, wait: bool) -> OpenFile:
    """Lock the marker together with all who use the folder.

    Args:
        path: the folder.
        sharing: the users who may use it.
        wait: whether to wait for somebody who has the marker locked exclusively.

    Returns:
        The marker; the lock ends when it is closed.

    Raises:
        MarkerTaken: somebody has the marker locked exclusively.
        StoreError: others use the folder who can't share it with this process, or OS locks do not work.
        OSError: the marker can't be read or written.
    """
    real = Path(os.path.realpath(path))
    for _ in range(ROUNDS):
        marker = OpenFile(real / NAME, open_file(real, NAME, sharing))
        try:
            _join(real, marker.fd, WAITS if wait else 1)
            _see_that_locks_exclude(real, sharing, marker.fd)
            if marker.is_intact():
                marker.path = os.fsencode(path / NAME)
                return marker
        except OSError as error:
            marker.close()
            if error.errno in NO_LOCKS:
                raise StoreError(f"{path} has no OS locks ({error}); choose a folder on a local disk") from error
            raise
        except BaseException:
            marker.close()
            raise
        marker.close()  # it was replaced meanwhile
    raise StoreError(f"{path}/{NAME} is replaced all the time; find out who does it")


def _join(path: Path, marker: int, tries: int) -> None:
    alone = _lock_alone(marker)
    if not alone:
        _share(path, marker, tries)
    written, links = os.pread(marker, MOST, 0), os.fstat(marker).st_nlink
    if written and not written.startswith(MAGIC):
        raise NotOurs(f"{path}/{NAME} is no file of interlock's: choose another folder, or remove it")
    if alone:
        here = text_here(path)
        if links == 1 or _facts(written).get("folder") == _facts(here)["folder"]:
            put(marker, here, 0)
            os.ftruncate(marker, len(here))
        _share(path, marker, tries)
        written = os.pread(marker, MOST, 0)  # somebody else may have had it between the two locks
    why = defect(path, written, links) if written else ""
    if why:
        raise StoreError(f"{path} {why}")


def _lock_alone(marker: int) -> bool:
    try:
        fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def _share(path: Path, marker: int, tries: int) -> None:
    for left in reversed(range(tries)):
        try:
            fcntl.flock(marker, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if left:
                time.sleep(0.01)  # whoever holds it exclusively does so for a moment
    raise MarkerTaken(f"{path}/{NAME} is locked exclusively by some other program; find it with lslocks")


def _see_that_locks_exclude(path: Path, sharing: Sharing, marker: int) -> None:
    try:
        other = open_file(path, NAME, sharing, create=False)
    except FileNotFoundError:
        return  # removed just now
    try:
        if not os.path.samestat(os.fstat(other), os.fstat(marker)):
            return  # replaced just now
        if not _lock_alone(other):
            return
    finally:
        os.close(other)
    raise StoreError(f"OS locks do not exclude in {path}: choose a folder on a local disk")
