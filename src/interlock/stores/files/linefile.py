"""The two files of one name: opening, the guard, reading, writing."""

import os
import threading
import time
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
from operator import attrgetter
from os import pread, sched_yield
from time import monotonic
from typing import Any

from interlock.core.claims import SEPARATOR
from interlock.core.errors import StoreError
from interlock.runtime.sync import step_under
from interlock.stores.files.failures import failed
from interlock.stores.files.folder import Folder
from interlock.stores.files.keys import HEAD_MOST, MAGIC, WAITING_AT, file_name, header, key_in
from interlock.stores.files.opening import (
    MOST_BYTES,
    ROUNDS,
    FileIdentity,
    NotOurs,
    in_place,
    may_remove,
    place,
    put,
    remove_file,
)
from interlock.stores.files.plan import Flag, Image, Write
from interlock.stores.files.record import FREE, SLOT, STATE_WIDTH, Slot, slots_in, text_of, with_raw

SPINS = 60
MOST_SPIN = 0.005  # seconds: on a busy machine each turn that is given away may take as long
MOST_IDLE = 8
TRY = LOCK_EX | LOCK_NB
TRUST = 0.02  # seconds for which a file is taken to be still in its folder
REMOVED = b"X"
NOBODY_WAITS = ord("0")
WAITS = b"pending "


def is_pending(start: bytes) -> bool:
    """Tell whether a file of waiters may begin like that."""
    return start[:STATE_WIDTH] == FREE or WAITS.startswith(start[:STATE_WIDTH])


class LineFile:
    """The open files of one name in this process.

    `step` excludes the threads of this process from each other; the guard, an OS lock on using/NAME, the other
    processes.  Both are held for one step only.
    """

    __slots__ = (
        "_folder",
        "_known_pending",
        "_known_using",
        "_mutex",
        "_name",
        "_pending_span",
        "fd",
        "head",
        "heads",
        "key",
        "last_tail",
        "pending_fd",
        "places",
        "retired",
        "span",
        "trusted",
        "waiters",
    )

    def __init__(self, folder: Folder, key: str) -> None:
        self._folder = folder
        self._name = file_name(key)
        self.key = key
        self._mutex: Any = threading.RLock()
        self.fd = -1
        self.pending_fd = -1
        self.places: tuple[FileIdentity, ...] = ()  # where both files must still be
        self.last_tail: tuple[object, str, bytes, str] = (None, "", b"", "")
        head = header(key)
        self.head = len(head)
        self.heads = (head, head[:WAITING_AT] + b"1" + head[WAITING_AT + 1 :])
        self.span = self.head + 4 * SLOT
        self._pending_span = 32 * SLOT
        self._known_using: list[tuple[bytes, Slot | None]] = []
        self._known_pending: list[tuple[bytes, Slot | None]] = []
        self.trusted = 0.0
        self.waiters: set[object] = set()
        self.retired = False  # no longer kept open for the next time

    def step(self) -> Any:
        """Return what excludes other threads of this process from a step.

        Raises:
            StoreError: it is a signal handler that asks, in the middle of a step of its own thread.
        """
        return step_under(self._mutex)

    # -- opening and guarding ---------------------------------------------------------------------------

    def guard(self) -> bytes | None:
        """Take the guard and read using/NAME; None if somebody else has it for longer than a step should last.

        The caller is in a `step`, and calls `unguard` afterwards, also after an exception.

        Raises:
            StoreError: the files can't be opened.
        """
        spins = opened = 0
        while True:
            if self.fd < 0:
                opened += 1
                if opened > ROUNDS:
                    raise StoreError(f"{self._path} is replaced all the time; find out who does it")
                self.open()
            try:
                flock(self.fd, TRY)
            except BlockingIOError:
                spins += 1
                if spins == 1:
                    until = monotonic() + MOST_SPIN
                if spins > SPINS or monotonic() > until:
                    return None
                sched_yield()
                continue
            data = pread(self.fd, self.span, 0)
            if self._is_sound(data) and len(data) < self.span and monotonic() < self.trusted:
                return data
            data = self._read_carefully(data)
            if data:
                return data
            self.close()  # it was cleaned up between our opening and our locking

    def unguard(self) -> None:
        """Give the guard back, if it is held."""
        if self.fd >= 0:
            flock(self.fd, LOCK_UN)
            if self.retired:
                self.close()

    def _read_carefully(self, data: bytes) -> bytes:
        """Return what the file says, put right if it is damaged; nothing if it is no longer the one in the folder."""
        # Our own clean-up marks the file before it is removed.  A file or folder that somebody else removed or
        # replaced is noticed here, within a moment: asking each time would cost more than the step.
        if not all(map(in_place, self.places)):
            return b""
        while len(data) >= self.span:
            if len(data) > MOST_BYTES:
                raise NotOurs(f"{self._path} has become longer than {MOST_BYTES} bytes; look at it, and remove it")
            self.span *= 2
            data = pread(self.fd, self.span, 0)
        if data[: self.head] == self._head_with(REMOVED):
            # Whoever was removing it died; others may hold a pending/NAME that is gone already.
            self.read_pending()
            if self._unlink():
                return b""
            data = pread(self.fd, self.span, 0)
        if not self._is_sound(data):
            self._put_right(data)
            data = pread(self.fd, self.span, 0)
        self.trusted = monotonic() + TRUST
        return data

    def _is_sound(self, data: bytes) -> bool:
        return data.startswith(self.heads) and not (len(data) - self.head) % SLOT

    def _head_with(self, flag: bytes) -> bytes:
        return self.heads[0][:WAITING_AT] + flag + self.heads[0][WAITING_AT + 1 :]

    def _put_right(self, found: bytes) -> None:
        """Write the head of a new or damaged file; of a damaged one, every claim that can be read stays."""
        if not found:
            put(self.fd, self.heads[0], 0)
            return
        key = key_in(found[:HEAD_MOST])
        if not found.startswith(MAGIC) and not self.heads[0].startswith(found):
            raise NotOurs(f"{self._path} is no line of interlock's; look at it, and remove it (nothing was changed)")
        if (key is not None and key != self.key) or os.fstat(self.fd).st_nlink != 1:
            raise NotOurs(f"{self._path} is a copy of another name's line; remove it (nothing was changed)")
        self._folder.put_aside(f"{self._name}.{time.time_ns()}", found)
        put(self.fd, self.heads[1], 0)  # somebody may wait: the next step looks
        os.ftruncate(self.fd, self.head + max(0, len(found) - self.head) // SLOT * SLOT)

    @property
    def _path(self) -> str:
        return os.fspath(self._folder.using / self._name)

    def open(self) -> None:
        """Open using/NAME, made if it is not there.

        Raises:
            StoreError: it can't be opened, or is no file of ours.
        """
        folder = self._folder
        try:
            folder.stay()
            self.fd = folder.open_line(folder.using, self._name)
            self.places = (place(self._path, self.fd),)
        except OSError as error:
            raise failed(f"the line of {self.key.partition(SEPARATOR)[2]!r} can't be opened", error) from error

    def close(self) -> None:
        """Close both files; they are opened again when needed."""
        fds = (self.fd, self.pending_fd)
        self.fd = self.pending_fd = -1
        self.places = ()
        self.trusted = 0.0
        for fd in fds:
            if fd >= 0:
                os.close(fd)

    # -- reading ----------------------------------------------------------------------------------------

    def read_pending(self) -> bytes:
        """Read pending/NAME; under the guard."""
        if self.pending_fd < 0:
            self._open_pending()
        data = pread(self.pending_fd, self._pending_span, 0)
        while len(data) >= self._pending_span:
            if len(data) > MOST_BYTES:
                raise NotOurs(f"{self._pending_path} has become longer than {MOST_BYTES} bytes; remove it")
            self._pending_span *= 2
            data = pread(self.pending_fd, self._pending_span, 0)
        return data

    @property
    def _pending_path(self) -> str:
        return os.fspath(self._folder.pending / self._name)

    def _open_pending(self) -> None:
        fd = self._folder.open_line(self._folder.pending, self._name)
        if not is_pending(pread(fd, STATE_WIDTH, 0)):
            os.close(fd)
            raise NotOurs(f"{self._pending_path} is no file of interlock's; remove it (nothing was changed)")
        self.pending_fd = fd
        self.places = (*self.places, place(self._pending_path, fd))

    def slots(self, data: bytes) -> list[Slot | None]:
        """Return the slots of using/NAME; `data` is what `guard` returned."""
        return slots_in(data, self.head, self._known_using)

    def slot(self, data: bytes) -> Slot | None:
        """Return the first of them."""
        slots = self.slots(data)
        return slots[0] if slots else None

    def image(self, data: bytes) -> Image:
        """Return what both files say; `data` is what `guard` returned."""
        top = 0
        using: list[Slot] = []
        free_using: list[int] = []
        for row, slot in enumerate(self.slots(data)):
            if slot is None:
                free_using.append(row)
                continue
            if slot.number > top:
                top = slot.number
            if slot.state == "using":
                using.append(slot)
            else:
                free_using.append(row)
        pending: list[Slot] = []
        free_pending: list[int] = []
        last = 0
        in_order = True
        for row, slot in enumerate(slots_in(self.read_pending(), 0, self._known_pending)):
            if slot is None or slot.state != "pending":
                free_pending.append(row)
                continue
            pending.append(slot)
            in_order = in_order and slot.number > last
            last = slot.number
        if not in_order:
            pending.sort(key=attrgetter("number"))
        return Image(using, pending, free_using, free_pending, top, data[WAITING_AT] != NOBODY_WAITS)

    # -- writing ----------------------------------------------------------------------------------------

    def perform(self, writes: list[Write | Flag]) -> None:
        """Do the writes of a step, in order; under the guard."""
        for write in writes:
            if isinstance(write, Flag):
                put(self.fd, b"1" if write.waiting else b"0", WAITING_AT)
                continue
            file, row, slot = write
            text = FREE if slot is None else text_of(slot)
            if file == "using":
                known = self._known_using
                put(self.fd, text, self.head + row * SLOT)
            else:
                known = self._known_pending
                put(self.pending_fd, text, row * SLOT)
            if slot is not None and row < len(known):
                known[row] = (text, with_raw(slot, text))  # what was just written need not be parsed

    def is_long(self) -> bool:
        """Tell whether the files have room for more claims than is worth keeping."""
        return len(self._known_using) > MOST_IDLE or len(self._known_pending) > MOST_IDLE

    def shrink(self, top: int) -> None:
        """Cut files that many claims made long, when nobody is in line; under the guard."""
        put(self.fd, b"%snumber=%016d" % (FREE, top), self.head)
        os.ftruncate(self.fd, self.head + SLOT)
        self.span = self.head + 4 * SLOT
        os.ftruncate(self.pending_fd, 0)

    def remove(self, top: int) -> bool:
        """Unlink both files of a name that nobody uses; under the guard.

        The fences of the name go on from the folder's floor.

        Returns:
            False if they stay, because the floor can't be raised or this user may not remove them.
        """
        self.read_pending()
        try:
            if not self._may_remove() or not self._folder.raise_floor(top):
                return False
        except NotOurs:
            return False
        put(self.fd, REMOVED, WAITING_AT)
        return self._unlink()

    def _may_remove(self) -> bool:
        return may_remove(self._folder.using, self.fd) and may_remove(self._folder.pending, self.pending_fd)

    def _unlink(self) -> bool:
        """Unlink both files; take back the mark that says so where this user may not."""
        try:
            if self._may_remove():
                remove_file(self._folder.pending, self._name, self.pending_fd)
                remove_file(self._folder.using, self._name, self.fd)
                return True
        except OSError:
            put(self.fd, b"1", WAITING_AT)
            raise
        put(self.fd, b"1", WAITING_AT)  # the next step reads the waiters
        return False
