"""What the store needs of Windows, by ctypes; the names of `_posix`.

A file of the store is opened so that others may read and write it, but not remove or rename it.  The OS lock is on
one byte far beyond the data, because Windows keeps even readers from locked bytes.  The system frees the locks of a
process that has died.  The access list of the folder says who may use it; there are no modes.
"""

import contextlib
import ctypes
import errno
import msvcrt
import os
import re
import socket
import stat
import sys
import time
from collections.abc import Callable, Mapping, Set
from ctypes import wintypes
from pathlib import Path
from typing import NoReturn

from interlock.core.errors import InvalidArgument, StoreError
from interlock.runtime.process import HOST
from interlock.stores.files import windows_paths
from interlock.stores.files.open_file import (
    MOST_BYTES,
    OPEN_ATTEMPTS,
    LivenessFile,
    Mount,
    NotOurs,
    OpenFile,
    Sharing,
)

assert sys.platform == "win32"

HAS_PIPES = False
EXAMPLE = windows_paths.EXAMPLE
FOR_SEVERAL = "redis:// or another server"
DATABASE_SLASHES = "three slashes and a drive"
SHORT_NAME = windows_paths.SHORT_NAME
LOCAL: Set[str] = {"NTFS", "ReFS"}
ADVICE: Mapping[int, str] = {
    errno.EMFILE: "This process has too many open files. Close some.",
    errno.EACCES: "Another program (a virus scanner, an indexer) has opened the file exclusively, or this user lacks "
    "the right. Exclude the folder from scanners, or change its access list (icacls).",
    errno.EPERM: "This user lacks the right. Change the access list of the folder (icacls).",
}
LOCK_SH, LOCK_EX, LOCK_NB, LOCK_UN = 1, 2, 4, 8
PATIENCE = 0.5  # seconds for which another program (a virus scanner, an indexer) may open a file exclusively
MAX_OPEN_FILES = 8192  # of the C library
HOME = "127.0.0.1"
OURS = Sharing(0o700, 0, 0)
path_in_url = windows_paths.path_in_url
folder_meant = windows_paths.folder_meant
readable_name = windows_paths.readable

_LOCKED_HIGH = 0x40000000  # the upper half of the offset of the locked byte: 2**62
_FAIL_IMMEDIATELY, _EXCLUSIVE = 1, 2
_ACCESS_DENIED, _SHARING_VIOLATION, _LOCK_VIOLATION, _NOT_LOCKED, _DELETE_PENDING = 5, 32, 33, 158, 303
_IO_PENDING = 997
_PASSING = (_ACCESS_DENIED, _SHARING_VIOLATION, _DELETE_PENDING)
_GENERIC_READ, _GENERIC_WRITE, _DELETE = 0x80000000, 0x40000000, 0x00010000
_SHARE_READ, _SHARE_WRITE = 1, 2
_CREATE_NEW, _OPEN_EXISTING, _OPEN_ALWAYS = 1, 3, 4
_OPEN_REPARSE_POINT = 0x00200000
_DISPOSITION = 4  # FileDispositionInfo
_DRIVE_REMOTE = 4
_QUERY_LIMITED_INFORMATION, _STILL_ACTIVE = 0x1000, 259
_TIME_OF_DAY = 3  # SystemTimeOfDayInformation
_TOKEN = re.compile(r"[0-9]+-[0-9a-f]{12}-[0-9]+")


class _Overlapped(ctypes.Structure):
    _fields_ = [
        ("Internal", ctypes.c_void_p), ("InternalHigh", ctypes.c_void_p),
        ("Offset", wintypes.DWORD), ("OffsetHigh", wintypes.DWORD), ("hEvent", wintypes.HANDLE),
    ]  # fmt: skip


_kernel = ctypes.WinDLL("kernel32", use_last_error=True)
_lock = _kernel.LockFileEx
_lock.argtypes = [wintypes.HANDLE, *[wintypes.DWORD] * 4, ctypes.POINTER(_Overlapped)]
_unlock = _kernel.UnlockFileEx
_unlock.argtypes = [wintypes.HANDLE, *[wintypes.DWORD] * 3, ctypes.POINTER(_Overlapped)]
_create = _kernel.CreateFileW
_create.argtypes = [wintypes.LPCWSTR, *[wintypes.DWORD] * 2, ctypes.c_void_p, *[wintypes.DWORD] * 2, wintypes.HANDLE]
_create.restype = wintypes.HANDLE
_close = _kernel.CloseHandle
_close.argtypes = [wintypes.HANDLE]
_set = _kernel.SetFileInformationByHandle
_set.argtypes = [wintypes.HANDLE, ctypes.c_int, ctypes.c_void_p, wintypes.DWORD]
_size = _kernel.GetFileSizeEx
_size.argtypes = [wintypes.HANDLE, ctypes.POINTER(ctypes.c_longlong)]
_open_process = _kernel.OpenProcess
_open_process.restype = wintypes.HANDLE
_exit_code = _kernel.GetExitCodeProcess
_exit_code.argtypes = [wintypes.HANDLE, ctypes.POINTER(wintypes.DWORD)]
_INVALID = wintypes.HANDLE(-1).value


def _fail(path: str | None = None) -> NoReturn:
    error = ctypes.WinError(ctypes.get_last_error())
    error.filename = path
    raise error


# -- files --------------------------------------------------------------------------------------------------


def flock(fd: int, operation: int) -> None:
    """Lock or unlock the one byte, as flock(2): a lock that this descriptor has is no obstacle.

    Raises:
        BlockingIOError: another descriptor has it.
        OSError: the file can't be locked.
    """
    where = ctypes.byref(_Overlapped(OffsetHigh=_LOCKED_HIGH))
    handle = msvcrt.get_osfhandle(fd)
    if operation == LOCK_UN:
        if not _unlock(handle, 0, 1, 0, where) and ctypes.get_last_error() not in (_NOT_LOCKED, _LOCK_VIOLATION):
            _fail()
        return
    flags = (_EXCLUSIVE if operation & LOCK_EX else 0) | (_FAIL_IMMEDIATELY if operation & LOCK_NB else 0)
    if _lock(handle, flags, 0, 1, 0, where):
        return
    if ctypes.get_last_error() not in (_LOCK_VIOLATION, _IO_PENDING):
        _fail()
    # An interrupt may have kept this descriptor locked, and Windows does not lock twice.
    if not (_unlock(handle, 0, 1, 0, where) and _lock(handle, flags, 0, 1, 0, where)):
        raise BlockingIOError(errno.EAGAIN, "another process has the lock")


def pread(fd: int, length: int, offset: int) -> bytes:
    """Read at an offset; the caller lets no other thread use the descriptor at the same time."""
    os.lseek(fd, offset, os.SEEK_SET)
    return os.read(fd, length)


def pwrite(fd: int, data: bytes, offset: int) -> int:
    """Write at an offset; see `pread`."""
    os.lseek(fd, offset, os.SEEK_SET)
    return os.write(fd, data)


def mark(fd: int) -> int:
    """Return what `is_marked` compares: the handle."""
    return msvcrt.get_osfhandle(fd)


def is_marked(fd: int, mark: int) -> bool:
    """Return True if a descriptor has its handle."""
    try:
        return msvcrt.get_osfhandle(fd) == mark
    except OSError:
        return False


def replace(src: str | Path, dst: str | Path) -> None:
    """Rename a file over another; wait for a program that has one of them open."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return os.replace(src, dst)
        except PermissionError:
            if time.monotonic() > until:
                raise
        time.sleep(0.001)


def give_turn() -> None:
    """Let other processes run."""
    time.sleep(0)


def _open(path: str, writes: bool, how: int) -> int:
    """Open a file, not through a link; until it is closed nobody can remove or rename it.

    Args:
        path: the file.
        writes: True to open it for writing too.
        how: a constant of CreateFileW.

    Returns:
        A descriptor, which child processes do not inherit.

    Raises:
        OSError: it can't be opened; PermissionError if another program has opened it exclusively.
    """
    until = time.monotonic() + PATIENCE
    rights = _GENERIC_READ | (_GENERIC_WRITE if writes else 0)
    while True:
        handle = _create(path, rights, _SHARE_READ | _SHARE_WRITE, None, how, _OPEN_REPARSE_POINT, None)
        if handle != _INVALID:
            return msvcrt.open_osfhandle(
                handle, os.O_NOINHERIT | os.O_BINARY | (os.O_RDWR if writes else os.O_RDONLY)
            )
        error = ctypes.get_last_error()
        if error not in _PASSING or time.monotonic() > until or (error == _ACCESS_DENIED and os.path.isdir(path)):
            ctypes.set_last_error(error)
            _fail(path)
        time.sleep(0.001)


def take(file: OpenFile) -> None:
    """Open the file at a path for reading.  The caller closes it if this raises."""
    file.fd = _open(file.path, False, _OPEN_EXISTING)
    file.identify()


def opener(path: str, flags: int) -> int:
    """Open a file, not through a link, for `open`."""
    return _open(path, bool(flags & (os.O_WRONLY | os.O_RDWR)), _CREATE_NEW if flags & os.O_EXCL else _OPEN_EXISTING)


def open_in(folder: str | Path, name: str, sharing: Sharing, create: bool) -> int:
    """Open a regular file; see `opening.open_file`.

    Returns:
        A descriptor; -1 if the folder disappeared repeatedly.
    """
    path = os.path.join(folder, name)
    for _ in range(OPEN_ATTEMPTS):
        try:
            fd = _open(path, create, _OPEN_ALWAYS if create else _OPEN_EXISTING)
        except FileNotFoundError:
            if create and os.path.isdir(folder):
                continue
            raise
        except PermissionError:
            if os.path.isdir(path):
                raise NotOurs("is a folder") from None
            raise
        try:
            _check(os.fstat(fd))
        except BaseException:
            os.close(fd)
            raise
        return fd
    return -1


def _check(found: os.stat_result) -> None:
    if found.st_file_attributes & stat.FILE_ATTRIBUTE_REPARSE_POINT:
        raise NotOurs("is a link")
    if found.st_size > MOST_BYTES:
        raise NotOurs(f"is {found.st_size} bytes long")
    if not found.st_size and found.st_nlink > 1:
        raise NotOurs("is empty and has a second name")


def sharing_of(found: os.stat_result) -> Sharing:
    """Return the users who may use a folder: whom its access list names."""
    return OURS


def settle(fd: int, found: os.stat_result, mode: int, sharing: Sharing) -> None:
    """Do nothing: a new file inherits the access list of its folder."""


def trusts(sharing: Sharing, owner: int) -> bool:
    """Return True: whoever may write to the folder is trusted."""
    return True


def may_use(path: str | Path, mode: int) -> bool:
    """Return True if this user has rights; see `os.access`."""
    return os.access(path, mode)


def hide_reads(fd: int, found: os.stat_result) -> None:
    """Do nothing: Windows does not update the time of access at each read."""


def remove(file: OpenFile) -> None:
    """Close an open file, and remove it if its path leads to it: nobody can remove an open file."""
    found = file.fd >= 0 and file.is_found()
    file.close()
    if found:
        with contextlib.suppress(OSError):
            os.unlink(file.path)


def remove_empty(file: OpenFile) -> None:
    """Close a file, and remove it if it is still empty, and no other process has it open."""
    file.close()
    handle = _create(file.path, _DELETE | _GENERIC_READ, 0, None, _OPEN_EXISTING, _OPEN_REPARSE_POINT, None)
    if handle != _INVALID:
        try:
            size, yes = ctypes.c_longlong(-1), ctypes.c_byte(1)
            if _size(handle, ctypes.byref(size)) and not size.value:
                _set(handle, _DISPOSITION, ctypes.byref(yes), 1)
        finally:
            _close(handle)


def max_open_files() -> int:
    """Return how many files this process may have open."""
    return MAX_OPEN_FILES


# -- folders ------------------------------------------------------------------------------------------------


def make_folder(path: Path, mode: int, sharing: Sharing | None = None) -> None:
    """Create a folder, which inherits the access list of its parent; do nothing if it exists."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)


def check_folder(room: Path, sharing: Sharing) -> None:
    """Check that a subfolder is a folder.

    Raises:
        NotOurs: it is a link or a junction.
    """
    found = os.lstat(room)
    if found.st_file_attributes & stat.FILE_ATTRIBUTE_REPARSE_POINT:
        raise NotOurs(f"{room} is a link. Inspect it, and remove it.")
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "no folder", os.fspath(room))


def mode_in(name: str, text: str) -> int:
    """Refuse the option: Windows has no permission bits."""
    raise InvalidArgument(
        f"{name}={text!r}: Windows has no permission bits. Omit {name}=, and set the folder's access rights with "
        "icacls."
    )


def folder_path(path: str) -> str:
    """Check the path of a folder; see `windows_paths.folder_path`.

    Raises:
        InvalidArgument: it is not an absolute path of a folder.
        StoreError: its drive does not exist, or it is of another machine.
    """
    whole = windows_paths.folder_path(path)
    drive = os.path.splitdrive(whole.removeprefix(windows_paths.PREFIX))[0] + "\\"
    if not os.path.exists(drive):
        raise StoreError(f"There is no drive {drive} for {path}. Choose a folder on another drive.")
    return whole


def resolved(path: Path) -> str:
    """Return the path of a folder: it may be a junction or in one."""
    return os.fspath(path)


def database_url(path: str) -> str:
    """Return the URL by which SQLite opens a file."""
    return Path(path).as_uri()


def default_folder() -> str:
    """Return the default folder of this user's locks; create it if it does not exist.

    Returns:
        The folder interlock\\locks in %LOCALAPPDATA%.

    Raises:
        StoreError: the variable is missing, or the folder can't be created.
    """
    elsewhere = f"set INTERLOCK_URL (or connect(url), --store) to a folder, e.g. file:///{EXAMPLE}."
    home = os.environ.get("LOCALAPPDATA", "")
    if not os.path.isabs(home):
        raise StoreError(f"The variable LOCALAPPDATA is missing, so this user has no folder for locks: {elsewhere}")
    path = os.path.join(home, "interlock", "locks")
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise StoreError(f"Cannot create the folder of this user's locks: {error}. Or {elsewhere}") from error
    return path


# -- the machine --------------------------------------------------------------------------------------------


class _TimeOfDay(ctypes.Structure):
    _fields_ = [
        ("BootTime", ctypes.c_longlong), ("CurrentTime", ctypes.c_longlong), ("TimeZoneBias", ctypes.c_longlong),
        ("TimeZoneId", wintypes.ULONG), ("Reserved", wintypes.ULONG),
        ("BootTimeBias", ctypes.c_longlong), ("SleepTimeBias", ctypes.c_longlong),
    ]  # fmt: skip


def boot_id() -> str:
    """Return the machine id, without a boot id.

    After a restart the liveness files are unlocked, and old leases are not trusted.
    """
    return f"host {HOST}"


def restart_id() -> str:
    """Return the machine and the time of its start, which setting the time of day does not change."""
    found = _TimeOfDay()
    query = ctypes.WinDLL("ntdll").NtQuerySystemInformation
    query(_TIME_OF_DAY, ctypes.byref(found), ctypes.sizeof(found), None)
    return f"{boot_id()} {found.BootTime - found.BootTimeBias}"


def time_namespace() -> str:
    """Return "0": all processes have one clock."""
    return "0"


def _resolved(path: str) -> str:
    """Resolve links, junctions and mapped drives; of the path's beginning if the path is too long for that."""
    while True:
        try:
            return os.path.realpath(path)
        except OSError:
            if os.path.dirname(path) == path:
                raise
        path = os.path.dirname(path)


def mount_of(path: str | Path) -> Mount:
    """Return the volume that a path is on; its type is "remote" if another machine has it."""
    real = _resolved(os.fspath(path))
    root = ctypes.create_unicode_buffer(1024)
    kind = ctypes.create_unicode_buffer(64)
    if not _kernel.GetVolumePathNameW(real, root, len(root)):
        root.value = os.path.splitdrive(real)[0] + "\\"
    remote = (root.value.startswith("\\\\") and not root.value.startswith("\\\\?\\")) or "\\UNC\\" in root.value
    if remote or _kernel.GetDriveTypeW(root.value) == _DRIVE_REMOTE:
        return Mount(root.value, "", "remote")
    _kernel.GetVolumeInformationW(root.value, None, 0, None, None, None, kind, len(kind))
    return Mount(root.value, "", kind.value or "unknown")


def is_running(pid: str) -> bool:
    """Return True if a process with a number is known to run."""
    if not pid.isdecimal():
        return False
    process = _open_process(_QUERY_LIMITED_INFORMATION, False, int(pid))
    if not process:
        return ctypes.get_last_error() == _ACCESS_DENIED
    try:
        code = wintypes.DWORD()
        return bool(_exit_code(process, ctypes.byref(code))) and code.value == _STILL_ACTIVE
    finally:
        _close(process)


# -- liveness -----------------------------------------------------------------------------------------------


class LivenessSocket(LivenessFile):
    """A locked file, and a socket whose connections nobody accepts: they end with this process.

    Args:
        folder: the folder alive/.
        token: the name of the file, without the port of the socket.
    """

    __slots__ = ("_folder", "_listener")

    def __init__(self, folder: Path, token: str) -> None:
        super().__init__(folder / token)
        self._folder = folder
        self._listener: socket.socket | None = None
        self.token = token

    def make(self) -> None:
        """Create the file, and lock it.

        Others can see the file before it is locked, but can't remove it, and no claim names it yet.
        """
        port = 0  # others then ask once a second whether this process lives
        with contextlib.suppress(OSError):  # loopback is blocked
            self._listener = socket.socket()
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
            self._listener.bind((HOME, 0))
            self._listener.listen(socket.SOMAXCONN)
            port = self._listener.getsockname()[1]
        self.token += f"-{port}"
        self.path = os.fspath(self._folder / self.token)
        self.fd = _open(self.path, True, _CREATE_NEW)
        self.identify()
        flock(self.fd, LOCK_EX | LOCK_NB)

    def close(self) -> None:
        """Close the file, and then the socket, so that whoever it wakes finds the lock free."""
        super().close()
        if self._listener is not None:
            self._listener.close()


new_liveness = LivenessSocket
open_liveness = take


def clean(folder: Path, is_dead: Callable[[str], bool]) -> None:
    """Remove the files of dead processes from a folder; see `_posix.clean`."""
    for name in os.listdir(folder):
        if _TOKEN.fullmatch(name) and is_dead(name):
            with contextlib.suppress(OSError):
                os.unlink(folder / name)
