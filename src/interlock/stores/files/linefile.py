"""The two files of one name: opening, the guard, reading, writing."""

import json
import os
import threading
import time
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
from operator import attrgetter
from os import pread, pwrite, sched_yield
from time import monotonic

from interlock.claims import SEPARATOR
from interlock.errors import StoreError
from interlock.stores.files.folder import Folder, file_name
from interlock.stores.files.plan import Flag, Image, Write
from interlock.stores.files.record import (
    FREE,
    SLOT,
    STATE_WIDTH,
    Slot,
    parse,
    text_of,
    with_raw,
)

MAGIC = b"interlock line 1 head="
WAITING_AT = len(MAGIC) + 5 + len(" waiting=")
SPINS = 60
MOST_IDLE = 8
HEAD_MOST = 16 * SLOT
TRY = LOCK_EX | LOCK_NB
TRUST = 0.02  # seconds for which a file is taken to be still in its folder
REMOVED = b"X"
NOBODY_WAITS = ord("0")


def header(key: str) -> bytes:
    """Return the head of a line file: a magic line with the waiting flag, and the name."""
    namespace, _, name = key.partition(SEPARATOR)
    text = json.dumps({"name": name, "namespace": namespace}, ensure_ascii=False).encode()
    size = -(-(WAITING_AT + 2 + len(text) + 1) // SLOT) * SLOT
    return (MAGIC + b"%05d waiting=0\n" % size + text).ljust(size - 1) + b"\n"


def key_in(head: bytes) -> str | None:
    """Return the key that a line file's head tells, or None if it is no head of ours."""
    if not head.startswith(MAGIC):
        return None
    try:
        told = json.loads(head[WAITING_AT + 2 :].partition(b"\n")[0])
        return str(told["namespace"]) + SEPARATOR + str(told["name"])
    except (ValueError, KeyError, TypeError):
        return None


def key_of(folder: Folder, name: str) -> str | None:
    """Return the key of a line file, or None if it is none."""
    try:
        with open(folder.using / name, "rb") as file:
            return key_in(file.read(HEAD_MOST))
    except OSError:
        return None


class LineFile:
    """The open files of one name in this process.

    `mutex` excludes the threads of this process from each other; the guard, an OS lock on using/NAME, the other
    processes.  Both are held for one step only.
    """

    __slots__ = (
        "_folder",
        "_known_pending",
        "_known_using",
        "_name",
        "_pending_span",
        "fd",
        "head",
        "heads",
        "key",
        "last_tail",
        "mutex",
        "pending_fd",
        "retired",
        "span",
        "trusted",
        "waiters",
    )

    def __init__(self, folder: Folder, key: str) -> None:
        self._folder = folder
        self._name = file_name(key)
        self.key = key
        self.mutex = threading.Lock()
        self.fd = -1
        self.pending_fd = -1
        self.last_tail: tuple[object, str, bytes] = (None, "", b"")
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

    # -- opening and guarding ---------------------------------------------------------------------------

    def guard(self) -> bytes | None:
        """Take the guard and read using/NAME; None if somebody else has it for longer than a step should last.

        The caller holds `mutex`, and calls `unguard` afterwards, also after an exception.

        Raises:
            StoreError: the files can't be opened.
        """
        spins = 0
        while True:
            if self.fd < 0:
                self.open()
            try:
                flock(self.fd, TRY)
            except BlockingIOError:
                spins += 1
                if spins > SPINS:
                    return None
                sched_yield()
                continue
            data = pread(self.fd, self.span, 0)
            if self._is_sound(data) and len(data) < self.span and monotonic() < self.trusted:
                return data
            data = self._read_carefully(data)
            if data:
                return data
            self.close()  # whoever cleaned up removed it between our opening and our locking

    def unguard(self) -> None:
        """Give the guard back, if it is held."""
        if self.fd >= 0:
            flock(self.fd, LOCK_UN)
            if self.retired:
                self.close()

    def _read_carefully(self, data: bytes) -> bytes:
        """Return what the file says, put right if it was no line file; nothing if it is no longer in the folder."""
        # Our own clean-up marks the file before it is removed.  A file that somebody else removed, with rm, is
        # noticed here, within a moment: looking at the file's links each time would make every write journal its
        # time stamps.
        if not os.fstat(self.fd).st_nlink:
            return b""
        while len(data) >= self.span:
            self.span *= 2
            data = pread(self.fd, self.span, 0)
        if not self._is_sound(data):
            if data[: self.head] == self.heads[0][:WAITING_AT] + REMOVED + self.heads[0][WAITING_AT + 1 :]:
                self._unlink()  # whoever was removing it died; others may hold a pending/NAME that is gone already
                return b""
            self._put_right(data)
            data = pread(self.fd, self.span, 0)
        self.trusted = monotonic() + TRUST
        return data

    def _is_sound(self, data: bytes) -> bool:
        return data.startswith(self.heads) and not (len(data) - self.head) % SLOT

    def _put_right(self, found: bytes) -> None:
        """Write the head of a new or damaged file; of a damaged one, every claim that can be read stays."""
        if not found:
            pwrite(self.fd, self.heads[0], 0)
            return
        self._folder.broken.mkdir(exist_ok=True)
        (self._folder.broken / f"{self._name}.{time.time_ns()}").write_bytes(found)
        pwrite(self.fd, self.heads[1], 0)  # somebody may wait: the next step looks
        os.ftruncate(self.fd, self.head + max(0, len(found) - self.head) // SLOT * SLOT)

    def open(self) -> None:
        """Open using/NAME, made if it is not there."""
        try:
            self.fd = os.open(self._folder.using / self._name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise StoreError(
                f"the line of {self.key.partition(SEPARATOR)[2]!r} can't be opened: {error}; see `interlock doctor`"
            ) from error

    def close(self) -> None:
        """Close both files; they are opened again when needed."""
        fds = (self.fd, self.pending_fd)
        self.fd = self.pending_fd = -1
        self.trusted = 0.0
        for fd in fds:
            if fd >= 0:
                os.close(fd)

    # -- reading ----------------------------------------------------------------------------------------

    def read_pending(self) -> bytes:
        """Read pending/NAME; under the guard."""
        if self.pending_fd < 0:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self.pending_fd = os.open(self._folder.pending / self._name, flags, 0o666)
        data = pread(self.pending_fd, self._pending_span, 0)
        while len(data) >= self._pending_span:
            self._pending_span *= 2
            data = pread(self.pending_fd, self._pending_span, 0)
        return data

    def slot(self, data: bytes) -> Slot | None:
        """Return the first slot of using/NAME; `data` is what `guard` returned."""
        slots = _slots(data, self.head, self._known_using)
        return slots[0] if slots else None

    def image(self, data: bytes) -> Image:
        """Return what both files say; `data` is what `guard` returned."""
        top = 0
        using: list[Slot] = []
        free_using: list[int] = []
        for row, slot in enumerate(_slots(data, self.head, self._known_using)):
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
        for row, slot in enumerate(_slots(self.read_pending(), 0, self._known_pending)):
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
                pwrite(self.fd, b"1" if write.waiting else b"0", WAITING_AT)
                continue
            file, row, slot = write
            text = FREE if slot is None else text_of(slot)
            if file == "using":
                known = self._known_using
                pwrite(self.fd, text, self.head + row * SLOT)
            else:
                known = self._known_pending
                pwrite(self.pending_fd, text, row * SLOT)
            if slot is not None and row < len(known):
                known[row] = (text, with_raw(slot, text))  # what was just written need not be parsed

    def is_long(self) -> bool:
        """Tell whether the files have room for more claims than is worth keeping."""
        return len(self._known_using) > MOST_IDLE or len(self._known_pending) > MOST_IDLE

    def shrink(self, top: int) -> None:
        """Cut files that many claims made long, when nobody is in line; under the guard."""
        pwrite(self.fd, b"%snumber=%016d" % (FREE, top), self.head)
        os.ftruncate(self.fd, self.head + SLOT)
        self.span = self.head + 4 * SLOT
        os.ftruncate(self.pending_fd, 0)

    def remove(self, top: int) -> None:
        """Unlink both files of a name that nobody uses; its fences go on from the folder's floor; under the guard."""
        self._folder.raise_floor(top)
        pwrite(self.fd, REMOVED, WAITING_AT)
        self._unlink()

    def _unlink(self) -> None:
        for folder in (self._folder.pending, self._folder.using):
            try:
                os.unlink(folder / self._name)
            except FileNotFoundError:
                pass


def _slots(data: bytes, start: int, known: list[tuple[bytes, Slot | None]]) -> list[Slot | None]:
    """Return the slots in `data`, parsing only those that differ from when they were `known`."""
    slots: list[Slot | None] = []
    row = 0
    for at in range(start, len(data), SLOT):
        raw = data[at : at + SLOT]
        if row == len(known):
            known.append((raw, parse(raw, row)))
        elif known[row][0] != raw:
            known[row] = (raw, _parse_again(raw, row, known[row]))
        slots.append(known[row][1])
        row += 1
    del known[row:]
    return slots


def _parse_again(raw: bytes, row: int, known: tuple[bytes, Slot | None]) -> Slot | None:
    before, slot = known
    if slot is not None and raw.startswith(FREE) and raw[STATE_WIDTH:] == before[STATE_WIDTH:]:
        return with_raw(slot, raw, "done")
    return parse(raw, row)
