"""The ways of reading the records: at once, one by one, or as two folders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from interlock.core._async.pending import PendingRecord
from interlock.core.claims import USING
from proof.pending.options import Listing, Options
from proof.pending.store import Effect, Store, seen


class Reading(NamedTuple):
    """A list in progress: the ids that must still be read unless removed, and the records read."""

    unread: frozenset[str]
    read: tuple[PendingRecord, ...]


def read(options: Options, store: Store, me: str, progress: Any) -> Iterator[Effect]:
    """Yield every way in which a list can continue.

    Args:
        options: the store's behaviour.
        store: the present store.
        me: the id of the record to which keys are compared.
        progress: the state of the list; None at its beginning.
    """
    records = seen(store.rows, me)
    if options.listing is Listing.WHOLE:
        yield _end(records, store)
    elif options.listing is Listing.SCAN:
        yield from _scan(records, store, progress)
    else:
        usings_first = options.listing is Listing.USINGS_FIRST
        if progress is None:
            part = tuple(record for record in records if (record.state == USING) is usings_first)
            folder = "using/" if usings_first else "pending/"
            yield Effect(f"reads {folder}: {shown(part)}", None, store, Reading(frozenset(), part))
            return
        both = {record.id: record for record in progress.read}
        both |= {record.id: record for record in records if (record.state == USING) is not usings_first}
        yield _end(tuple(both[id] for id in sorted(both)), store)


def shown(records: tuple[PendingRecord, ...]) -> str:
    """A list as text."""
    words = [f"{record.id} {record.state}{' (expired)' if record.expired else ''}" for record in records]
    return ", ".join(words) or "nothing"


def _end(records: tuple[PendingRecord, ...], store: Store) -> Effect:
    return Effect(f"lists: {shown(records)}", records, store)


def _scan(records: tuple[PendingRecord, ...], store: Store, reading: Reading | None) -> Iterator[Effect]:
    """Every record that exists from begin to end is read once, each at its own moment."""
    if reading is None:
        yield Effect("begins to read", None, store, Reading(frozenset(record.id for record in records), ()))
        return
    there = {record.id: record for record in records}
    unread = reading.unread.intersection(there)
    if not unread:
        yield _end(reading.read, store)
    for id in sorted(unread):
        further = Reading(unread - {id}, tuple(sorted((*reading.read, there[id]))))
        yield Effect(f"reads {shown((there[id],))}", None, store, further)
