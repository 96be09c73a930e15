"""The fast paths through a line of files: what nearly every step is, without making a plan.

Each leaves the claims of live processes, the fences and the flag in the files as the plan would have left them; tests
hold them to it, and the model knows them.  Whatever is less simple than a fast path can do is left to the plan:
above all, a dead waiter where the plan would clear it away.
"""

import time
from collections.abc import Callable
from time import monotonic
from typing import Any, TypeAlias

from interlock.core.claims import Claim, LockSpec
from interlock.core.errors import StoreError
from interlock.core.queue import EnterResult, Granted
from interlock.stores.files.folder import Folder
from interlock.stores.files.keys import WAITING_AT
from interlock.stores.files.linefile import MOST_IDLE, NOBODY_WAITS, LineFile
from interlock.stores.files.liveness import Liveness
from interlock.stores.files.opening import put
from interlock.stores.files.plan import LOOK_AGAIN
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
    text_of,
    write_slot,
)

Wakeups: TypeAlias = list[tuple[str, int, Granted | None]]
NUMBER_AT = STATE_WIDTH + len("number=")
NUMBER_END = NUMBER_AT + 16
MOST_TAILS = 1024


class FastPath:
    """The fast paths of one store.

    Args:
        folder: where its files are.
        liveness: returns this process's liveness in the folder.
    """

    def __init__(self, folder: Folder, liveness: Callable[[], Liveness]) -> None:
        self._folder = folder
        self._liveness = liveness
        self._tails: dict[tuple[str, LockSpec, str], bytes] = {}

    def nobody_uses(self, line: LineFile, data: bytes) -> bool:
        """Tell whether nobody waits and nobody holds."""
        return data[WAITING_AT] == NOBODY_WAITS and data.find(b"using   number=", line.head) < 0

    def use(self, line: LineFile, data: bytes, claim: Claim) -> EnterResult:
        """The uncontended path: nobody is in line; one write makes the claim a holder."""
        head = line.head
        top = _number(data, head)
        for at in range(head + SLOT, len(data), SLOT):
            top = max(top, _number(data, at))
        fence = self.new_fence(top or self._folder.floor())
        until = monotonic() + claim.spec.ttl
        end = self.tail(line, claim, self._liveness().token)
        put(line.fd, write_slot(b"using   ", fence, until, claim.id, 0, end), head)
        return EnterResult("using", fence)

    def join(self, line: LineFile, data: bytes, claim: Claim, wakeup: Any) -> EnterResult | None:
        """The common way to wait: one live holder has the lock for itself, and this claim is the last in line.

        The waiters, their order and the flag are what the plan would have left.

        Returns:
            The result; None if the line is less simple than that, and the plan is to be made.
        """
        now = monotonic()
        holder = line.slot(data)
        if holder is None or holder.state != "using" or holder.capacity != 1 or not self._lives(holder, now):
            return None
        waits = line.read_pending()
        ids = (holder.id.encode().ljust(ID_WIDTH), claim.id.encode().ljust(ID_WIDTH))
        if len(waits) % SLOT or holder.id == claim.id:
            return None
        waiters = _waiters(waits)
        if any(waits.startswith(ids, at + ID_AT) for _, at in waiters):
            return None
        before, place = holder, 1
        if waiters:
            # A dead one at the head is cleared away by the plan, and so is one before the new place.
            head, last = _slot_at(waits, min(waiters)[1]), _slot_at(waits, max(waiters)[1])
            if head is None or last is None or not self._lives(head, now) or not self._lives(last, now):
                return None
            before, place = last, last.number + 1
        taken = {at for _, at in waiters}
        free = next((at for at in range(0, len(waits), SLOT) if at not in taken), len(waits))
        until = now + claim.spec.ttl
        end = self.tail(line, claim, self._liveness().token)
        text = write_slot(b"pending ", place, until, claim.id, wakeup.pipe.number, end)
        put(line.pending_fd, text, free)
        if data[WAITING_AT] == NOBODY_WAITS:
            put(line.fd, b"1", WAITING_AT)
        wakeup.stand_in(line.waiters)
        wakeup.watch((before.alive,))
        return EnterResult("pending", 0, jitter(max(0.001, min(LOOK_AGAIN, holder.until - now))))

    def renew(self, claim: Claim, token: str, line: LineFile, data: bytes) -> bool | None:
        """Extend the lease of a holder without looking who waits, which needs one more file.

        Returns:
            True if that was done; None if the plan is to be made.
        """
        now = monotonic()
        for slot in line.slots(data):
            if slot is not None and slot.state == "using" and slot.id == claim.id:
                if slot.until <= now or slot.alive != token:
                    return None
                put(line.fd, text_of(slot._replace(until=now + claim.spec.ttl)), line.head + slot.row * SLOT)
                return True
        return None

    def leave(self, line: LineFile, data: bytes, claim: Claim) -> Wakeups | None:
        """Leave a line that nobody waits in, or in which one waiter takes over.

        Returns:
            The wake-up pipes to ring when the guard is free again; None if the plan is to be made.
        """
        at = line.head  # where `use` and the hand-over write
        if not _is_using(data, at, claim.id):
            return None
        if data[WAITING_AT] == NOBODY_WAITS:
            if len(data) > at + MOST_IDLE * SLOT:
                return None  # a crowd made the file long: the plan may cut it
            put(line.fd, FREE, at)
            return []
        if claim.spec.capacity == 1 and len(data) == line.head + SLOT:
            return self._hand_over(line, data, claim.id)
        return None

    def _hand_over(self, line: LineFile, data: bytes, id: str) -> Wakeups | None:
        """The common way to leave a line in which others wait: the only holder's place goes to the first of them.

        The holder, its fence and the flag are what the plan would have left, in one write less.  Another process is
        told at once; a thread of this one would only wait for the guard.

        Returns:
            The wake-up pipe to ring when the guard is free again; None if the line is less simple than that, and the
            plan is to be made.
        """
        waits = line.read_pending()
        now = monotonic()
        waiters = sorted(_waiters(waits))
        slot = _slot_at(waits, waiters[0][1]) if waiters else None
        if slot is None or slot.capacity != 1 or slot.id == id or not self._lives(slot, now):
            return None
        if len(waiters) > 1:
            # The plan clears a dead one away that comes to the head of the line.
            head = _slot_at(waits, waiters[1][1])
            if head is None or not self._lives(head, now):
                return None
        fence = self.new_fence(_number(data, line.head))
        put(line.fd, b"using   number=%016d" % fence + slot.raw[NUMBER_END:], line.head)
        pipe = (slot.alive, slot.pipe, Granted(slot.id, fence))
        liveness = self._liveness()
        if slot.alive != liveness.token:
            liveness.ring(*pipe)
        put(line.pending_fd, FREE, waiters[0][1])
        if len(waiters) == 1:
            put(line.fd, b"0", WAITING_AT)
        return [pipe]

    def _lives(self, slot: Slot, now: float) -> bool:
        return slot.until > now and self._liveness().is_alive(slot.alive)

    def new_fence(self, top: int) -> int:
        """Issue a fence that is higher than `top`, and than all that an emptied folder has forgotten."""
        fence = max(top + 1, time.time_ns() // 1000)
        if fence > MOST_NUMBER:
            raise StoreError("the fences of this folder are damaged: none is left; see `interlock doctor`")
        return fence

    def tail(self, line: LineFile, claim: Claim, token: str) -> bytes:
        """Return the constant end of the claim's slot; most claims on a line come from one lock in one thread."""
        _, spec, who = claim
        known = line.last_tail
        if known[0] is spec and known[1] == who and known[3] is token:
            return known[2]
        end = self._tails.get((token, spec, who))
        if end is None:
            if len(self._tails) >= MOST_TAILS:
                self._tails.clear()
            end = self._tails[token, spec, who] = tail(claim, token)
        line.last_tail = (spec, who, end, token)
        return end


def _waiters(waits: bytes) -> list[tuple[bytes, int]]:
    """Return for each waiter in pending/NAME its number, as it is written, and where it stands."""
    return [
        (waits[at + NUMBER_AT : at + NUMBER_END], at)
        for at in range(0, len(waits), SLOT)
        if waits.startswith(b"pending ", at)
    ]


def _slot_at(waits: bytes, at: int) -> Slot | None:
    return parse(waits[at : at + SLOT], at // SLOT)


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
