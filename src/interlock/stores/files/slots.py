"""The format of a line file: a head, and slots of 512 bytes, readable with `cat`.

    interlock line 2 head=00512 done=0000000000.000000
    {"name": "book:1", "namespace": ""}
    using   fence=1795259983751384 until=0000001234.567890 since=1795259983.751384 held=1795259983.751384 id=…

The head contains the name, the namespace, and the end of the record of a completed run.  A free slot keeps the fence
of its last claim.  A slot is written by one call and never crosses a page, so a killed process leaves no half of it.
"""

import json
import os
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, TypeAlias

from interlock.core.claims import INSTANCE_MARK, MICROS, SEPARATOR
from interlock.core.errors import StoreError
from interlock.core.line import QueuedClaim
from interlock.stores.files.system import system

try:
    from _blake2 import blake2b  # the same as hashlib's, but hashlib loads OpenSSL
except ImportError:
    from hashlib import blake2b

SLOT = 512
FREE = b"done    "
MOMENT_LENGTH = 17  # characters of a moment
TAIL_AT = 176  # the position of `units=` in a slot
LEAST_LABEL = 46  # bytes of the label beside an instance, for the digest of a payload of `once` and "…"
MAX_FENCE = 9 * 10**15  # fences stay below it until the year 2255; a higher one is damage
LINE_MAGIC = b"interlock line 2 head="
DONE_AT = len(LINE_MAGIC) + 5 + len(" done=")
TEXT_AT = DONE_AT + MOMENT_LENGTH + 1
HEAD_MOST = 32 * SLOT  # the longest name and namespace, all control characters, which JSON writes as six bytes each
MOST_READABLE = 90  # bytes of the readable part; the file name with hash and suffix must not exceed 255
_STATES: dict[bytes, Literal["pending", "using"]] = {b"using   ": "using", b"pending ": "pending"}
_FENCE = re.compile(rb".{14}([0-9]{16})", re.DOTALL)
_CLAIM = re.compile(
    rb"(using   |pending )fence=([0-9]{16}) until=(.{17}) since=(.{17}) held=(.{17}) id=([ -~]{36}) pipe=([0-9]{6}) "
    rb"beat=([0-9]{6}) slot=([0-9]{4}) units=([0-9]+)/([0-9]+) ttl=([0-9]+) once=(.) "
    # The token is a file name in alive/, and must not lead out of the folder.
    rb"alive=((?!\.)[!-.0-~]*) pid=([^ ]*) host=([^ ]*) (.*)",
    re.DOTALL,
)
_JSON = json.JSONDecoder()

Slot: TypeAlias = QueuedClaim | int
"""A claim; for a free slot, the fence of its last claim."""


# -- the file of a name -------------------------------------------------------------------------------------


def file_name(key: str) -> str:
    """Return a key's file name: a simple name itself, else a readable part and a hash.

    Different keys have different file names, even on a file system that ignores case.
    """
    namespace, _, name = key.partition(SEPARATOR)
    if not namespace and system.SHORT_NAME.fullmatch(name):
        return name
    words = system.readable_name(re.sub(r"[^\w.-]+", "-", f"{namespace}.{name}".strip(".").lower()))
    readable = words.encode()[:MOST_READABLE].decode(errors="ignore").strip("-.")
    # Encoded as UTF-8 in every locale, because otherwise processes with other locales would lock other files.
    return os.fsdecode(f"{readable}~{blake2b(key.encode(), digest_size=20).hexdigest()}".encode())


def head_of(key: str) -> bytes:
    """Return the head of a line without a record; its length is a multiple of `SLOT`."""
    namespace, _, name = key.partition(SEPARATOR)
    text = json.dumps({"name": name, "namespace": namespace}, ensure_ascii=False).encode()
    size = -(-(TEXT_AT + len(text) + 1) // SLOT) * SLOT
    return (LINE_MAGIC + b"%05d done=%b\n" % (size, moment(0)) + text).ljust(size - 1) + b"\n"


def key_in(head: bytes) -> str | None:
    """Return the key in the head of a line file; None if the head is invalid."""
    if not head.startswith(LINE_MAGIC):
        return None
    try:
        record = json.loads(head[TEXT_AT:].partition(b"\n")[0])
        key = str(record["namespace"]) + SEPARATOR + str(record["name"])
        key.encode()
        return key
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


# -- slots --------------------------------------------------------------------------------------------------


def moment(micros: int) -> bytes:
    """Return microseconds as decimal seconds, in the format of `date -d @…`."""
    return b"%010d.%06d" % divmod(micros, MICROS)


def micros_in(text: bytes, at: int = 0) -> int:
    """Parse the moment at an offset; return its microseconds, -1 if there is none."""
    digits = text[at : at + 10] + text[at + 11 : at + MOMENT_LENGTH]
    return int(digits) if len(digits) == MOMENT_LENGTH - 1 and digits.isdigit() else -1


def parse(raw: bytes) -> Slot:
    """Parse a slot; an invalid slot counts as free."""
    known = _FENCE.match(raw)
    fence = int(known[1]) if known else 0
    found = _CLAIM.fullmatch(raw)
    if fence > MAX_FENCE:
        return 0
    if found is None or len(raw) != SLOT:
        return fence
    state, _, until, since, held, id, pipe, beat, slot, units, capacity, ttl, once, alive, pid, host, end = (
        found.groups()
    )
    who, label = _texts(end.decode(errors="replace"))
    home = f"{host.decode(errors='replace')} {int(pid) if pid.isdigit() else 0}"
    return QueuedClaim(
        id.decode().rstrip(), _STATES[state], int(units), int(capacity), micros_in(until), int(ttl), int(beat), fence,
        max(0, micros_in(since)), max(0, micros_in(held)), int(slot), once == b"1", who, label, home,
        pipe.decode().lstrip("0"), alive.decode(),
    )  # fmt: skip


def raws_in(data: bytes, start: int) -> list[bytes]:
    """Return the texts of the slots in `data`, which begin at `start`."""
    return [data[at : at + SLOT] for at in range(start, len(data), SLOT)]


def text_of(place: QueuedClaim) -> bytes:
    """Return the text of a slot.

    Raises:
        StoreError: the text has the wrong length, and would overwrite the next slot.
    """
    text = b"%-8bfence=%016d until=%b since=%b held=%b id=%-36b pipe=%06d beat=%06d slot=%04d %b" % (
        place.state.encode(), place.fence, moment(place.until), moment(place.since), moment(place.held),
        place.id.encode(), int(place.channel or 0), place.renewal_count % MICROS, place.slot,
        tail(
            place.units, place.capacity, place.ttl, place.once, place.liveness_token, place.process_name, place.who,
            place.label,
        ),
    )  # fmt: skip
    if len(text) != SLOT or place.fence > MAX_FENCE:
        raise StoreError(
            f"A claim with fence {place.fence} does not fit into the file of its name, because the fences are "
            f"damaged. Stop the users of this name, and remove the file."
        )
    return text


@lru_cache(1024)
def tail(units: int, capacity: int, ttl: int, once: bool, alive: str, home: str, who: str, label: str) -> bytes:
    """Return the part of a slot that is common to all claims of one lock in one thread."""
    host, _, pid = home.rpartition(" ")
    host = "".join(letter if "!" <= letter <= "~" else "?" for letter in host)[:64]
    fixed = f"units={units}/{capacity} ttl={ttl} once={once:d} alive={alive} pid={pid} host={host}"
    room = SLOT - TAIL_AT - len(fixed) - len(" thread= label=") - 1
    # An instance makes the thread's text longer: it gets the room that the label leaves, and at least room for its
    # marks, which JSON writes as two bytes each, because a takeover reads them.
    marks = who.rfind(INSTANCE_MARK) + 1
    least = min(marks + 60, room - LEAST_LABEL) if marks else 60
    thread = _fit(who, max(least, room - len(_fit(label, room - least).encode())))
    text = f"{fixed} thread={thread} label={_fit(label, room - len(thread.encode()))}"
    return text.encode().ljust(SLOT - TAIL_AT - 1) + b"\n"


def _fit(text: str, most: int) -> str:
    """Return a text as a JSON string, cut to `most` bytes."""
    quoted = json.dumps(text, ensure_ascii=False)
    while len(quoted.encode()) > most:
        text = text[: -max(1, (len(quoted.encode()) - most) // 6)]  # a letter may have six bytes
        quoted = json.dumps(text + "…", ensure_ascii=False)
    return quoted


def _texts(end: str) -> tuple[str, str]:
    """Return the thread and label of a claim; "?" if damaged, for display only."""
    try:
        who, at = _JSON.raw_decode(end, len("thread="))
        label, _ = _JSON.raw_decode(end, at + len(" label="))
        return str(who), str(label)
    except (LookupError, ValueError):
        return "?", "?"


def top_of(slots: Sequence[Slot]) -> int:
    """Return the highest fence of all slots."""
    return max((slot if isinstance(slot, int) else slot.fence for slot in slots), default=0)
