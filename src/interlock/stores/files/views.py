"""Looking at the lines from outside, without the guard: nobody is held up by somebody who looks."""

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from interlock.core.claims import SEPARATOR, ClaimView, moment_of, namespace_of
from interlock.stores.files.failures import failed
from interlock.stores.files.folder import Folder, names_in
from interlock.stores.files.keys import file_name, header, key_of
from interlock.stores.files.opening import NotOurs, read_file
from interlock.stores.files.record import FREE, SLOT, Slot, details, parse


def look(folder: Folder, is_alive: Callable[[str], bool], key: str) -> list[ClaimView]:
    """List the live claims of a key, or of a whole namespace; as `Queue.look`."""
    try:
        if not key.endswith(SEPARATOR):
            return [view(slot, key) for slot in slots(folder, key, is_alive)]
        return [
            view(slot, each)
            for each in sorted(_keys(folder))
            if each.startswith(key)
            for slot in slots(folder, each, is_alive)
        ]
    except OSError as error:
        raise failed(f"the lines in {folder.path} can't be read", error) from error


def namespaces(folder: Folder, is_alive: Callable[[str], bool]) -> list[str]:
    """List the namespaces that have live claims; as `BaseStore.namespaces`."""
    try:
        return sorted({namespace_of(key) for key in _keys(folder) if any(slots(folder, key, is_alive))})
    except OSError as error:
        raise failed(f"the lines in {folder.path} can't be read", error) from error


def _keys(folder: Folder) -> set[str]:
    return {key for name in names_in(folder.using) if (key := key_of(folder, name)) is not None}


def slots(folder: Folder, key: str, is_alive: Callable[[str], bool]) -> Iterator[Slot]:
    """Yield the live slots of a key, holders first, then waiters in their order."""
    name = file_name(key)
    now = time.monotonic()
    # Waiters are read first: a claim that is promoted between the two looks shows in both, never in none.
    pending = list(_read(folder, folder.pending, name, 0))
    using = list(_read(folder, folder.using, name, len(header(key))))
    seen = {slot.id for slot in using if slot.state == "using"}
    waiters = sorted((slot for slot in pending if slot.id not in seen), key=lambda slot: slot.number)
    for slot in [*using, *waiters]:
        if slot.state != "done" and slot.until > now and is_alive(slot.alive):
            yield slot


def _read(folder: Folder, room: Path, name: str, start: int) -> Iterator[Slot]:
    try:
        data = read_file(room, name, folder.sharing)[start:]
    except (FileNotFoundError, NotOurs):
        return  # the doctor names what does not belong there
    for index, at in enumerate(range(0, len(data), SLOT)):
        raw = data[at : at + SLOT]
        slot = None if raw.startswith(FREE) else parse(raw, index)
        if slot is not None:
            yield slot


def view(slot: Slot, key: str) -> ClaimView:
    """Return a slot as people see it."""
    granted = details(slot.raw)
    using = slot.state == "using"
    return ClaimView(
        name=key.partition(SEPARATOR)[2],
        id=slot.id,
        state="using" if using else "pending",
        units=slot.units,
        capacity=slot.capacity,
        fence=slot.number if using else None,
        host=granted.host,
        pid=granted.pid,
        thread=granted.thread,
        label=granted.label,
        since=_seconds(granted.since),
        expires_in=slot.until - time.monotonic(),
        held_since=moment_of(slot.number) if using else None,
    )


def _seconds(stamp: str) -> float:
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except (ValueError, OverflowError):
        return 0.0  # damaged
