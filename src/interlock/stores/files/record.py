"""How a claim is written in a line file: one slot of fixed width, one line of text, readable with `cat`.

    using   number=1795259983751384 until=0000001234.567890 since=2026-11-21T10:36:08.123Z id=… bell=000000 …

A slot is written with one call and never crosses a page, so that a killed process leaves no half of it.
"""

import json
import re
import time
from typing import Literal, NamedTuple, TypeAlias

from interlock.claims import Claim
from interlock.process import HOST, pid

SLOT = 512
STATE_WIDTH = 8
UNTIL_AT = STATE_WIDTH + len("number=0000000000000000 until=")
UNTIL_WIDTH = 17
ID_AT = UNTIL_AT + UNTIL_WIDTH + len(" since=2026-11-21T10:36:08.123Z id=")
ID_WIDTH = 36
TAIL_AT = ID_AT + ID_WIDTH + len(" bell=000000 ")
FREE = b"done    "

SlotState: TypeAlias = Literal["using", "pending", "done"]

_PATTERN = re.compile(
    rb"(using  |pending|done   ) number=(\d{16}) until=(\d{10}\.\d{6}) since=([^ ]{24}) id=([0-9a-zA-Z_-]+) *"
    rb" bell=(\d{6}) units=(\d+)/(\d+) alive=([0-9a-z-]+) pid=(\d+) host=([^ ]*) thread=(.*?) label=(.*?) *$"
)


class Slot(NamedTuple):
    """A claim as it stands in a line file.

    Attributes:
        row: its place in the file, from 0.
        state: using, pending, or done (free to be written again; its number still counts).
        number: the fence of a holder, the place in line of a waiter.
        until: when its lease ends, on the machine's monotonic clock.
        id, units, capacity: of the claim.
        alive: the beacon of its process.
        bell: the number of the bell that wakes it.
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
    bell: int
    raw: bytes


class Details(NamedTuple):
    """What a slot says for people."""

    pid: int
    host: str
    thread: str
    label: str
    since: str


_STATES: dict[bytes, SlotState] = {b"using  ": "using", b"pending": "pending", b"done   ": "done"}


def parse(raw: bytes, index: int) -> Slot | None:
    """Return the slot in `raw`, or None if it is no slot of ours."""
    match = _PATTERN.match(raw)
    if match is None:
        return None
    state, number, until, _, id, bell, units, capacity, alive, *_ = match.groups()
    return Slot(
        index,
        _STATES[state],
        int(number),
        float(until),
        id.decode(),
        int(units),
        int(capacity),
        alive.decode(),
        int(bell),
        raw,
    )


def details(raw: bytes) -> Details:
    """Return what a slot that was parsed says for people."""
    match = _PATTERN.match(raw)
    if match is None:
        raise ValueError("not a slot")
    groups = match.groups()
    return Details(int(groups[9]), groups[10].decode(), _text(groups[11]), _text(groups[12]), groups[3].decode())


def _text(quoted: bytes) -> str:
    try:
        return str(json.loads(quoted))
    except ValueError:
        return quoted.decode(errors="replace")


def tail(claim: Claim, alive: str) -> bytes:
    """Return the part of a slot that stays the same for all claims of one lock in one thread."""
    terms = claim.terms
    fixed = f"units={terms.units}/{terms.capacity} alive={alive} pid={pid()} host={_short(HOST, 64)}"
    room = SLOT - TAIL_AT - len(fixed.encode()) - len(" thread= label=") - 1
    who = json.dumps(claim.who, ensure_ascii=False)
    label = json.dumps(terms.label, ensure_ascii=False)
    text = f"{fixed} thread={_fit(who, 60)} label={_fit(label, room - 60)}"
    return text.encode().ljust(SLOT - TAIL_AT - 1) + b"\n"


def _short(text: str, most: int) -> str:
    return re.sub(r"[^!-~]", "?", text)[:most]


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


def write_slot(state: bytes, number: int, until: float, id: str, bell: int, end: bytes) -> bytes:
    """Return the text of a slot; `state` has STATE_WIDTH bytes, and `end` comes from `tail`."""
    return b"%bnumber=%016d until=%017.6f since=%b id=%-36b bell=%06d %b" % (
        state,
        number,
        until,
        since_now(),
        id.encode(),
        bell,
        end,
    )


def until_text(until: float) -> bytes:
    """Return the text of a deadline, to be written at UNTIL_AT of a slot."""
    return b"%017.6f" % until


def promoted_text(raw: bytes, fence: int) -> bytes:
    """Return the slot of a waiter as that of a holder with `fence`."""
    return b"using   number=%016d" % fence + raw[STATE_WIDTH + len("number=") + 16 :]
