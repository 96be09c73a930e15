"""The advisory locks of this process, by what their URLs say; in a forked child there are none."""

import threading

from interlock.runtime.process import in_forked_child
from interlock.stores.advisory.options import Options
from interlock.stores.advisory.room import Room, all_rooms
from interlock.stores.advisory.session import AdvisorySession

_by_options: dict[Options, Room] = {}
_inherited: list[AdvisorySession] = []  # never collected, which would end them
_mutex = threading.RLock()


def room_of(options: Options) -> Room:
    """Return the locks of this process on a server; `let_go` gives them back."""
    with _mutex:
        room = _by_options.get(options)
        if room is None:
            room = _by_options[options] = Room(options)
            all_rooms.add(room)
        room.users += 1
        return room


def let_go(room: Room) -> None:
    """Give a room back; the last one closes it."""
    with _mutex:
        room.users -= 1
        if room.users or _by_options.get(room.options) is not room:
            return
        del _by_options[room.options]
    room.close()


def _after_fork() -> None:
    global _mutex
    _mutex = threading.RLock()
    for room in all_rooms:
        _inherited.extend(room.sessions.open())
        room.abandon()


in_forked_child(_after_fork)
