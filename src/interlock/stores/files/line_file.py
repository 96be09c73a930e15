"""The open file of one name: the guard, reading and writing."""

import os

from interlock.runtime import clock
from interlock.storekit.blocking import Section
from interlock.stores.files.folder import Folder
from interlock.stores.files.open_file import MOST_BYTES, NotOurs, OpenFile
from interlock.stores.files.opening import open_file, put
from interlock.stores.files.slots import (
    DONE_AT,
    FREE,
    HEAD_MOST,
    LINE_MAGIC,
    MOMENT_LENGTH,
    SLOT,
    Slot,
    file_name,
    head_of,
    key_in,
    micros_in,
    moment,
    parse,
    raws_in,
    text_of,
)
from interlock.stores.files.system import system
from interlock.stores.files.write_plan import Action, RecordWrite, Write

SPINS = 60
MOST_SPIN = 0.005  # seconds: on a busy machine one sched_yield may take as long
MOST_IDLE = 8  # slots that an empty line keeps
TRY_LOCK = system.LOCK_EX | system.LOCK_NB
UNLOCK = system.LOCK_UN
flock = system.flock
give_turn = system.give_turn
is_marked = system.is_marked
pread = system.pread
TRUST = 0.02  # seconds for which a check that a line file or a liveness pipe is still in its folder counts


class LineFile(OpenFile):
    """The open file of one name in this process.

    The section excludes other threads of this process; the guard, an OS lock on the file, excludes other processes.
    Both are held for one step only.

    Attributes:
        key: the key of the line.
        name: the name of the file.
        head: the first bytes of the file while it has no record of a completed run.
        section: the caller that performs a step on the line is in it; compiled code only has its mutex.
        lost: True if the program has closed the descriptor, and perhaps other descriptors of this process.
        retired: True if the file is closed after the step instead of being kept open.
        trusted: the time until which the last check that the file is still in its folder is valid.
    """

    __slots__ = (
        "_folder", "_known", "_span",
        "head", "key", "lost", "name", "retired", "section", "trusted",
    )  # fmt: skip

    def __init__(self, folder: Folder, key: str) -> None:
        self._folder = folder
        self.name = file_name(key)
        super().__init__(os.path.join(folder.lines, self.name))
        self.key = key
        self.head = head_of(key)
        self.section = Section()
        self.lost = self.retired = False
        self.trusted = 0.0
        self._span = len(self.head) + 4 * SLOT
        self._known: list[tuple[bytes, Slot]] = []

    # -- the guard --------------------------------------------------------------------------------------

    def guard(self) -> bytes | None:
        """Take the guard and read the file; None if a step of another process takes too long.

        The caller is in the section, and must call `unguard` afterwards, also after an exception.

        Raises:
            StoreError, OSError: the file cannot be opened.
        """
        until = clock.now() + MOST_SPIN
        for _ in range(SPINS):
            if not self.is_ours():
                self.lost = self.lost or self.fd >= 0
                self.open()
            try:
                flock(self.fd, TRY_LOCK)
            except BlockingIOError:
                if clock.now() > until:
                    break
                give_turn()
                continue
            data = pread(self.fd, self._span, 0)
            whole = data.startswith(self.head) and not (len(data) - len(self.head)) % SLOT
            if not (whole and len(data) < self._span and clock.now() < self.trusted):
                data = self._read_carefully(data)
            if data:
                return data
            self.shut()  # the file was removed between open and flock
        return None

    def unguard(self) -> None:
        """Release the guard, if held, unless the descriptor belongs to another file now."""
        if self.is_ours():
            flock(self.fd, UNLOCK)
        if self.retired:
            self.shut()

    def _read_carefully(self, data: bytes) -> bytes:
        """Return the content, repaired if it is damaged; b"" if the file is not in the folder any more."""
        # Our own clean-up empties the file before it removes it.  A file or folder that another program removed or
        # replaced is noticed here, within `TRUST`: a check at each step would cost more than the step.
        if not self.is_intact():
            return b""
        while len(data) >= self._span:
            if len(data) > MOST_BYTES:
                raise NotOurs(f"{self.path} is longer than {MOST_BYTES} bytes. Inspect the file, and remove it.")
            self._span *= 2
            data = pread(self.fd, self._span, 0)
        right = self.head[:DONE_AT] + moment(max(0, micros_in(data, DONE_AT))) + self.head[DONE_AT + MOMENT_LENGTH :]
        if not data:  # a new file
            put(self.fd, self.head, 0)
            data = self.head
        elif not data.startswith(right) or (len(data) - len(right)) % SLOT:
            self._put_right(data)
            data = pread(self.fd, self._span, 0)
        self.trusted = clock.now() + TRUST
        return data

    def _put_right(self, found: bytes) -> None:
        """Write the head of a damaged file; its readable claims stay."""
        key = key_in(found[:HEAD_MOST])
        if not found.startswith(LINE_MAGIC) and not self.head.startswith(found):
            raise NotOurs(f"{self.path} was not written by interlock. Inspect and remove it. Nothing was changed.")
        if (key is not None and key != self.key) or self.links() != 1:
            raise NotOurs(f"{self.path} is a copy of another name's file. Remove it. Nothing was changed.")
        put(self.fd, self.head, 0)
        os.ftruncate(self.fd, len(self.head) + max(0, len(found) - len(self.head)) // SLOT * SLOT)

    def open(self) -> None:
        """Open the file; create it if it does not exist.

        Raises:
            StoreError, OSError: the file cannot be opened, or interlock did not create it.
        """
        self.shut()
        folder = self._folder
        folder.stay()
        try:
            self.fd = open_file(folder.lines, self.name, folder.sharing)
        except FileNotFoundError:
            folder.repair()
            self.fd = open_file(folder.lines, self.name, folder.sharing)
        try:
            found = self.identify()
            # If the program closes the descriptor, another file may get its number.
            self.mark = system.mark(self.fd)
            system.hide_reads(self.fd, found)
        except BaseException:
            self.close()
            raise

    def is_ours(self) -> bool:
        """Return True if the file is open, and its descriptor still belongs to the file."""
        return self.fd >= 0 and is_marked(self.fd, self.mark)

    def is_there(self, now: float) -> bool:
        """Return True if the file is still in its folder; a check counts for `TRUST` seconds."""
        if now >= self.trusted:
            if not self.is_found():
                return False
            self.trusted = now + TRUST
        return True

    def shut(self) -> None:
        """Close the file; it is opened again when needed."""
        self.trusted = 0.0
        self.close()

    # -- reading and writing; under the guard -----------------------------------------------------------

    def slots(self, data: bytes) -> list[Slot]:
        """Return the slots; `data` is the content that `guard` returned."""
        raws = raws_in(data, len(self.head))
        if raws != [raw for raw, _ in self._known]:
            known = dict(self._known)
            self._known = [(raw, known[raw] if raw in known else parse(raw)) for raw in raws]
        return [slot for _, slot in self._known]

    def perform(self, action: Action) -> None:
        """Perform one write of a step."""
        if isinstance(action, Write):
            row, place = action
            text = FREE if place is None else text_of(place)
            put(self.fd, text, len(self.head) + row * SLOT)
            if place is not None and row < len(self._known):
                self._known[row] = (text, place)  # saves parsing the slot at the next read
        elif isinstance(action, RecordWrite):
            if not action.done:
                self._folder.drop_value(self.name)
            put(self.fd, moment(action.done), DONE_AT)

    def shorten(self, count: int, top: int) -> None:
        """Truncate the file of an empty line to one slot, if it has many.

        Args:
            count: the number of its slots.
            top: the highest fence of a slot, which the remaining slot keeps.
        """
        if count > MOST_IDLE:
            put(self.fd, b"%bfence=%016d" % (FREE, top), len(self.head))
            os.ftruncate(self.fd, len(self.head) + SLOT)
            self._span = len(self.head) + 4 * SLOT

    def discard(self) -> None:
        """Unlink the file of an unused name; a new file starts its fences at the time of day, which is higher.

        In a sticky folder, only the owner of the file may: it stays, empty.
        """
        if self.links() == 1 and self.is_found():
            self._folder.drop_value(self.name)
            os.ftruncate(self.fd, 0)  # other processes with this file open look for its path seldom
            system.remove_empty(self)
