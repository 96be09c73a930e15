"""The quick ways through a line of files: what nearly every step is, without making a plan.

Each does to the files what the plan would have done; a test holds them to it, and the model knows them.  Whatever is
less simple than a quick way can do is left to the plan.
"""

import os
import time
from collections.abc import Callable
from time import monotonic
from typing import Any, TypeAlias

from interlock.claims import Claim
from interlock.protocols.queue import Told, Turn
from interlock.stores.files.folder import Folder
from interlock.stores.files.linefile import MOST_IDLE, NOBODY_WAITS, WAITING_AT, LineFile
from interlock.stores.files.plan import LOOK_AGAIN
from interlock.stores.files.presence import Presence
from interlock.stores.files.record import (
    FREE,
    ID_AT,
    ID_WIDTH,
    MOST_NUMBER,
    SLOT,
    STATE_WIDTH,
    Slot,
    parse,
    tail,
    write_slot,
)

Bells: TypeAlias = list[tuple[str, int, Told | None]]
NUMBER_AT = STATE_WIDTH + len("number=")
NUMBER_END = NUMBER_AT + 16
MOST_TAILS = 1024


class QuickWays:
    """The quick ways of one store.

    Args:
        folder: where its files are.
        presence: returns this process's presence in the folder.
    """

    def __init__(self, folder: Folder, presence: Callable[[], Presence]) -> None:
        self._folder = folder
        self._presence = presence
        self._tails: dict[tuple[Any, ...], bytes] = {}

    def nobody_uses(self, line: LineFile, data: bytes) -> bool:
        """Tell whether nobody waits and nobody holds."""
        return data[WAITING_AT] == NOBODY_WAITS and data.find(b"using   number=", line.head) < 0

    def use(self, line: LineFile, data: bytes, claim: Claim) -> Turn:
        """The uncontended path: nobody is in line; one write makes the claim a holder."""
        head = line.head
        top = _number(data, head)
        for at in range(head + SLOT, len(data), SLOT):
            top = max(top, _number(data, at))
        fence = self.new_fence(top or self._folder.floor())
        until = monotonic() + claim.terms.ttl
        os.pwrite(line.fd, write_slot(b"using   ", fence, until, claim.id, 0, self.tail(line, claim)), head)
        return Turn("using", fence)

    def join(self, line: LineFile, data: bytes, claim: Claim, wakeup: Any) -> Turn | None:
        """The common way to wait: one living holder has the lock for itself, and this claim is the last in line.

        What it writes is what the plan would have written.

        Returns:
            The turn; None if the line is less simple than that, and the plan is to be made.
        """
        now = monotonic()
        holder = line.slot(data)
        if holder is None or holder.state != "using" or holder.capacity != 1 or not self._lives(holder, now):
            return None
        waits = line.read_pending()
        ids = (holder.id.encode().ljust(ID_WIDTH), claim.id.encode().ljust(ID_WIDTH))
        last, highest, free = -1, b"", -1
        for at in range(0, len(waits), SLOT):
            if waits.startswith(b"pending ", at):
                number = waits[at + NUMBER_AT : at + NUMBER_END]
                if waits.startswith(ids, at + ID_AT):
                    return None
                if number > highest:
                    last, highest = at, number
            elif free < 0:
                free = at
        before = holder if last < 0 else parse(waits[last : last + SLOT], last // SLOT)
        if before is None or not self._lives(before, now) or len(waits) % SLOT or holder.id == claim.id:
            return None
        place = before.number + 1 if last >= 0 else 1
        until = now + claim.terms.ttl
        text = write_slot(b"pending ", place, until, claim.id, wakeup.bell.number, self.tail(line, claim))
        os.pwrite(line.pending_fd, text, free if free >= 0 else len(waits))
        if data[WAITING_AT] == NOBODY_WAITS:
            os.pwrite(line.fd, b"1", WAITING_AT)
        wakeup.stand_in(line.waiters)
        wakeup.watch((before.alive,))
        return Turn("pending", 0, jitter(max(0.001, min(LOOK_AGAIN, holder.until - now))))

    def leave(self, line: LineFile, data: bytes, claim: Claim) -> Bells | None:
        """Leave a line that nobody waits in, or in which one waiter takes over.

        Returns:
            The bells to ring when the guard is free again; None if the plan is to be made.
        """
        at = line.head  # where `use` and the hand-over write
        if not _is_using(data, at, claim.id):
            return None
        if data[WAITING_AT] == NOBODY_WAITS:
            if len(data) > at + MOST_IDLE * SLOT:
                return None  # a crowd made the file long: the plan may cut it
            os.pwrite(line.fd, FREE, at)
            return []
        if claim.terms.capacity == 1 and len(data) == line.head + SLOT:
            return self._hand_over(line, data, claim.id)
        return None

    def _hand_over(self, line: LineFile, data: bytes, id: str) -> Bells | None:
        """The common way to leave a line in which others wait: the only holder's place goes to the first of them.

        What it writes is what the plan would have written, in one write less.  Another process is told at once; a
        thread of this one would only wait for the guard.

        Returns:
            The bell to ring when the guard is free again; None if the line is less simple than that, and the plan is
            to be made.
        """
        waits = line.read_pending()
        first, waiters = _first(waits)
        slot = parse(waits[first : first + SLOT], first // SLOT) if first >= 0 else None
        if slot is None or slot.capacity != 1 or slot.id == id:
            return None
        if not self._lives(slot, monotonic()):
            return None
        fence = self.new_fence(_number(data, line.head))
        os.pwrite(line.fd, b"using   number=%016d" % fence + slot.raw[NUMBER_END:], line.head)
        bell = (slot.alive, slot.bell, Told(slot.id, fence))
        presence = self._presence()
        if slot.alive != presence.token:
            presence.ring(*bell)
        os.pwrite(line.pending_fd, FREE, first)
        if waiters == 1:
            os.pwrite(line.fd, b"0", WAITING_AT)
        return [bell]

    def _lives(self, slot: Slot, now: float) -> bool:
        return slot.until > now and self._presence().is_alive(slot.alive)

    def new_fence(self, top: int) -> int:
        """Issue a fence that is higher than `top`, and than all that an emptied folder has forgotten."""
        return max(top + 1, time.time_ns() // 1000)

    def tail(self, line: LineFile, claim: Claim) -> bytes:
        """Return the constant end of the claim's slot; most claims on a line come from one lock in one thread."""
        _, terms, who = claim
        if line.last_tail[0] is terms and line.last_tail[1] == who:
            return line.last_tail[2]
        end = self._tails.get((terms, who))
        if end is None:
            if len(self._tails) >= MOST_TAILS:
                self._tails.clear()
            end = self._tails[terms, who] = tail(claim, self._presence().token)
        line.last_tail = (terms, who, end)
        return end


def _first(waits: bytes) -> tuple[int, int]:
    """Return where in pending/NAME the first in line stands, and how many wait; (-1, 0) if nobody does."""
    first, lowest, waiters = -1, b"", 0
    for at in range(0, len(waits), SLOT):
        if waits.startswith(b"pending ", at):
            waiters += 1
            number = waits[at + NUMBER_AT : at + NUMBER_END]
            if first < 0 or number < lowest:
                first, lowest = at, number
    return first, waiters


def jitter(seconds: float) -> float:
    """Return a time within a tenth of `seconds`, so that those who wait do not look in step."""
    return seconds * (0.9 + time.time_ns() % 1000 / 5000)


def _number(data: bytes, at: int) -> int:
    """Return the number in the slot at `at`; 0 if there is none that can be read."""
    text = data[at + NUMBER_AT : at + NUMBER_END]
    number = int(text) if text.isdigit() else 0
    return number if number <= MOST_NUMBER else 0


def _is_using(data: bytes, at: int, id: str) -> bool:
    id_at = at + ID_AT
    return data[at : at + 6] == b"using " and data[id_at : id_at + ID_WIDTH].rstrip() == id.encode()
