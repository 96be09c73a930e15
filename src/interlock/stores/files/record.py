"""How a claim is written in a line file: one slot of fixed width, one line of text, readable with `cat`.

    using   number=1795259983751384 until=0000001234.567890 since=2026-11-21T10:36:08.123Z id=… bell=000000 …

A slot is written with one call and never crosses a page, so that a killed process leaves no half of it.
"""

import json
import time
from typing import Literal, NamedTuple, TypeAlias

from interlock.core.claims import Claim
from interlock.core.errors import StoreError
from interlock.runtime.process import HOST, pid

SLOT = 512
STATE_WIDTH = 8
UNTIL_AT = STATE_WIDTH + len("number=0000000000000000 until=")
UNTIL_WIDTH = 17
ID_AT = UNTIL_AT + UNTIL_WIDTH + len(" since=2026-11-21T10:36:08.123Z id=")
ID_WIDTH = 36
TAIL_AT = ID_AT + ID_WIDTH + len(" bell=000000 ")
FREE = b"done    "
MOST_NUMBER = 9 * 10**15  # no fence comes near it before the year 2255; a higher one is damage
MOST_UNTIL = 1e10
_JSON = json.JSONDecoder()

SlotState: TypeAlias = Literal["using", "pending", "done"]


class Slot(NamedTuple):
    """A claim as it stands in a line file.

    Attributes:
        row: its place in the file, from 0.
        state: using, pending, or done (free to be written again; its number still counts).
        number: the fence of a holder, the place in line of a waiter.
        until: when its lease ends, on the machine's monotonic clock.
        id, units, capacity: of the claim.
        alive: the liveness pipe of its process.
        pipe: the number of the wake-up pipe that wakes it; `bell=` in the file.
        raw: the whole text.
    """

    row: int
    state: SlotState
    number: int
    until: float
    id: str
    units: int
    capacity: int
    alive: str
    pipe: int
    raw: bytes


class Details(NamedTuple):
    """What a slot says for people."""

    pid: int
    host: str
    thread: str
    label: str
    since: str


_STATES: dict[bytes, SlotState] = {b"using": "using", b"pending": "pending", b"done": "done"}


def parse(raw: bytes, row: int) -> Slot | None:
    """Return the slot in `raw`, or None if it is no slot of ours."""
    words = raw.split(None, 8)
    try:
        units, _, capacity = words[6][6:].partition(b"/")
        slot = Slot(
            row,
            _STATES[words[0]],
            int(words[1][7:]),
            float(words[2][6:]),
            words[4][3:].decode(),
            int(units),
            int(capacity),
            words[7][6:].decode(),
            int(words[5][5:]),
            raw,
        )
    except (LookupError, ValueError):
        return None
    if len(raw) != SLOT or words[1][:7] != b"number=" or words[7][:6] != b"alive=":
        return None
    if not slot.alive or slot.alive[0] == "." or "/" in slot.alive or "\0" in slot.alive:
        return None  # it is a file name in alive/, and must not lead out of there
    return slot if 0 <= slot.number <= MOST_NUMBER and 0 <= slot.until < MOST_UNTIL else None


def details(raw: bytes) -> Details:
    """Return what a slot that was parsed says for people."""
    words = raw.split(None, 10)
    details = Details(0, "?", "?", "?", "?")
    try:
        since = words[3][6:].decode()
        details = Details(int(words[8][4:]), words[9][5:].decode(errors="replace"), "?", "?", since)
        text = words[10].decode(errors="replace")
        who, end = _JSON.raw_decode(text, len("thread="))
        label, _ = _JSON.raw_decode(text, end + len(" label="))
        return details._replace(thread=str(who), label=str(label))
    except (LookupError, ValueError):
        return details  # damaged: only people read it


def tail(claim: Claim, alive: str) -> bytes:
    """Return the part of a slot that stays the same for all claims of one lock in one thread."""
    spec = claim.spec
    fixed = f"units={spec.units}/{spec.capacity} alive={alive} pid={pid()} host={_short(HOST, 64)}"
    room = SLOT - TAIL_AT - len(fixed.encode()) - len(" thread= label=") - 1
    who = json.dumps(claim.who, ensure_ascii=False)
    label = json.dumps(spec.label, ensure_ascii=False)
    text = f"{fixed} thread={_fit(who, 60)} label={_fit(label, room - 60)}"
    return text.encode().ljust(SLOT - TAIL_AT - 1) + b"\n"


def _short(text: str, most: int) -> str:
    return "".join(letter if "!" <= letter <= "~" else "?" for letter in text)[:most]


def _fit(quoted: str, most: int) -> str:
    """Cut a JSON string to `most` bytes, so that it stays one."""
    while len(quoted.encode()) > most:
        text = json.loads(quoted)
        quoted = json.dumps(text[: len(text) * 3 // 4] + "…", ensure_ascii=False)
    return quoted


_second, _stamp = 0, b""


def since_now() -> bytes:
    """Return the time of day as 24 characters of ISO 8601, UTC."""
    global _second, _stamp
    milliseconds = time.time_ns() // 1_000_000
    second = milliseconds // 1000
    if second != _second:
        _stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)).encode()
        _second = second
    return b"%s.%03dZ" % (_stamp, milliseconds % 1000)


def write_slot(state: bytes, number: int, until: float, id: str, pipe: int, end: bytes) -> bytes:
    """Return the text of a slot; `state` has STATE_WIDTH bytes, and `end` comes from `tail`.

    Raises:
        StoreError: it does not fit into a slot.
    """
    text = b"%bnumber=%016d until=%017.6f since=%b id=%-36b bell=%06d %b" % (
        state,
        number,
        until,
        since_now(),
        id.encode(),
        pipe,
        end,
    )
    return checked(text, number)


def checked(text: bytes, number: int) -> bytes:
    """Return the text of a slot if it fills one, so that nothing is written over the next."""
    if len(text) != SLOT or number > MOST_NUMBER:
        raise StoreError(
            f"a claim with number {number} does not fit into a line file: the numbers of this folder are damaged; "
            f"stop those who use it and remove the line's files, and `fences`"
        )
    return text


def text_of(slot: Slot) -> bytes:
    """Return the text of a slot whose state, number or deadline may differ from those in its raw text."""
    state = b"using   " if slot.state == "using" else b"pending "
    start = b"%bnumber=%016d until=%017.6f" % (state, slot.number, slot.until)
    return checked(start + slot.raw[UNTIL_AT + UNTIL_WIDTH :], slot.number)


def with_raw(slot: Slot, raw: bytes, state: SlotState | None = None) -> Slot:
    """Return the slot as it is read from `raw`; quicker than parsing it."""
    row, was, number, until, id, units, capacity, alive, pipe, _ = slot
    return Slot(row, state or was, number, until, id, units, capacity, alive, pipe, raw)


def slots_in(data: bytes, start: int, known: list[tuple[bytes, Slot | None]]) -> list[Slot | None]:
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
