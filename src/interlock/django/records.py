"""Rows of the table of claims as the protocol and people see them."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from interlock.core.claims import USING, ClaimView, moment_of
from interlock.core.pending import Record
from interlock.django.statements import MICROSECONDS

CHUNK = 500  # ids in one statement
LONGEST_TEXT = 255


def hashed(key: str) -> str:
    """Return what stands for a key in the table."""
    return sha256(key.encode()).hexdigest()


def chunks(ids: Sequence[str]) -> Sequence[Sequence[str]]:
    """Return the ids in pieces that fit into a statement."""
    return [ids[at : at + CHUNK] for at in range(0, len(ids), CHUNK)]


def fitting(text: str) -> str:
    """Return a text that says who somebody is, as far as the column holds it."""
    return text.replace("\0", "").encode(errors="replace").decode()[:LONGEST_TEXT]


def record_of(row: Any) -> Record:
    """Return a row of `claimlines.line` as a record."""
    id, number, units, capacity, state, fence, left = row
    return Record(id, number, units, capacity, state, fence or 0, left <= 0)


def view_of(row: Any) -> ClaimView:
    """Return a row of `claimlines.live` as a view."""
    _, id, _, name, state, units, capacity, fence, host, process, thread, label, since, _, left = row
    return ClaimView(
        name=name,
        id=id,
        state="using" if state == USING else "pending",
        units=units,
        capacity=capacity,
        fence=fence,
        host=host,
        pid=process,
        thread=thread,
        label=label or "",
        since=since / MICROSECONDS,
        expires_in=left / MICROSECONDS,
        held_since=moment_of(fence) if state == USING else None,
    )
