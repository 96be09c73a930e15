"""The store of the world: records in the order of their keys, and the effects of each request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from interlock.core.claims import PENDING, USING, State, fits
from interlock.core.queue import PendingRecord
from model_checker.pending.options import NAMES, Fence, Options, Update
from model_checker.pending.register import Ask

OLD, CURRENT, RENEWAL = 0, 1, 2
"""The moment of the owner's clock from which the lease of a record counts: an earlier one, the one of the last
request, or the one of the renewal in progress."""


class Row(NamedTuple):
    """A record in the store."""

    id: str
    units: int
    capacity: int
    state: State
    fence: int = 0
    expired: bool = False
    lease: int = CURRENT
    slot: int = 0

    @property
    def owner(self) -> int:
        """The number of the caller."""
        return NAMES.index(self.id[0].upper())

    @property
    def of_current_call(self) -> bool:
        """False for a record that its caller has given up."""
        return self.id in NAMES


Rows = tuple[Row, ...]


class Store(NamedTuple):
    """The state of the store: the records in order, the last fence issued, the notifications (id, fence, slot)."""

    rows: Rows = ()
    issued: int = 0
    words: tuple[tuple[str, int, int], ...] = ()


class Effect(NamedTuple):
    """The effect of one request: its text, the answer, the store after it."""

    words: str
    answer: object
    store: Store


def index(rows: Rows, id: str) -> int | None:
    """The position of a record; None if it does not exist."""
    return next((place for place, row in enumerate(rows) if row.id == id), None)


def without(rows: Rows, id: str) -> Rows:
    """The other records."""
    return tuple(row for row in rows if row.id != id)


def incompatible(parts: list[tuple[int, int]]) -> bool:
    """Return True if these claims may not hold the lock together, by the formula of `core.line`."""
    return len(parts) > 1 and not fits(*parts[0], parts[1:])


def seen(rows: Rows, me: str) -> tuple[PendingRecord, ...]:
    """The records for the protocol, with keys relative to the caller's own, since it compares only with that."""
    own = index(rows, me)
    return tuple(
        PendingRecord(
            row.id,
            0 if own is None else (place > own) - (place < own),
            row.units,
            row.capacity,
            row.state,
            row.fence,
            row.expired,
        )
        for place, row in enumerate(rows)
    )


def write(options: Options, store: Store, request: Ask, lease: int) -> Iterator[Effect]:
    """Yield every possible effect of a writing request.

    Args:
        options: the store's behaviour.
        store: the store before the request.
        request: a request of `register`.
        lease: the moment from which the lease of a record counts if this request starts it.
    """
    id = request.id
    match request.verb:
        case "create":
            units, capacity = request.args
            yield from _create(options, store, Row(id, units, capacity, PENDING, lease=lease))
        case "update":
            (state,) = request.args
            verb = "raises its flag" if state == PENDING else "lowers its flag"
            yield from _change(options, store, id, {"state": state}, options.update, verb, lease)
        case "renew":
            yield from _change(options, store, id, {}, options.renewal, "renews", lease)
        case "draw":
            drawn = store.issued + 1
            yield Effect(f"draws the fence {drawn}", drawn, store._replace(issued=drawn))
        case "promote":
            yield from _promote(options, store, request, lease)
        case "delete":
            removed = index(store.rows, id) is not None
            rows = without(store.rows, id)
            if options.by_name:
                rows = tuple(row for row in rows if row.state != USING)
            words = "deletes its record" if removed else "finds no record to delete"
            yield Effect(words, removed, Store(rows, store.issued))
        case "reap":
            rows = store.rows
            place = index(rows, id)
            if place is None or not (rows[place].expired or options.reaps_live):
                yield Effect(f"reaps nothing ({id})", False, store)
            else:
                yield Effect(f"reaps {id}'s record", True, Store(without(rows, id), store.issued))
        case _:
            raise TypeError(f"not a request of a register: {request!r}")


def _create(options: Options, store: Store, row: Row) -> Iterator[Effect]:
    rows = store.rows
    if index(rows, row.id) is not None:
        yield Effect("creates its record, which is there already", None, store)
        return
    for place in [len(rows)] if options.ordered else range(len(rows) + 1):
        words = "creates pending" + ("" if place == len(rows) else f", before {rows[place].id}")
        yield Effect(words, None, Store((*rows[:place], row, *rows[place:]), store.issued))


def _change(
    options: Options, store: Store, id: str, fields: dict[str, Any], when: Update, verb: str, lease: int
) -> Iterator[Effect]:
    rows = store.rows
    place = index(rows, id)
    renewal = verb == "renews"
    answer: object = (True,) if renewal else True
    if place is None:
        yield Effect(f"{verb}: gone", (False,) if renewal else False, store)
        return
    row = rows[place]
    if row.expired and when is Update.UNEXPIRED:
        yield Effect(f"{verb}: refused, expired", (False,) if renewal else False, store)
        return
    row = row._replace(**fields)
    if renewal or when is not Update.UNEXPIRED:
        row = row._replace(expired=False, lease=lease)
    yield Effect(verb, answer, Store((*rows[:place], row, *rows[place + 1 :]), store.issued))


def _promote(options: Options, store: Store, request: Ask, lease: int) -> Iterator[Effect]:
    verb = "goes from pending to using"
    rows, issued, _ = store
    place = index(rows, request.id)
    if place is None:
        yield Effect(f"{verb}: gone", None, store)
        return
    row = rows[place]
    if row.state != PENDING or (row.expired and options.update is Update.UNEXPIRED):
        yield Effect(f"{verb}: refused, {'expired' if row.expired else row.state}", None, store)
        return
    (fence,) = request.args
    if options.fence is Fence.ISSUED:
        fence = issued = issued + 1
    elif options.fence is Fence.NONE:
        fence = 1
    row = row._replace(state=USING, fence=fence)
    if options.update is not Update.UNEXPIRED:
        row = row._replace(expired=False, lease=lease)
    words = f"{verb}, fence {fence}" if options.fence is not Fence.NONE else verb
    yield Effect(words, fence, Store((*rows[:place], row, *rows[place + 1 :]), issued))
