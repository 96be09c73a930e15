"""Wake-ups between processes of one host where the database tells nobody anything: MariaDB, MySQL, SQLite.

Whoever leaves reads who is first in line, and if that one waits in another process of this host, sends it a datagram.
It only means that the waiter should look, and nobody relies on it. Where a process listens follows from its number,
which stands in the row of the waiter.
"""

from weakref import WeakSet

from interlock.django.waiters import LineWaiters
from interlock.remote import neighbours as remote
from interlock.remote.waiters import Waiters
from interlock.runtime import clock
from interlock.runtime.process import HOST, in_forked_child, pid

CHANNEL = "interlock_orm_{}"
AGAIN = 1.0  # seconds before a listener that could not be is tried again


class _AllWaiters(Waiters):
    """The waiters of all databases."""

    def notify(self, id: str, fence: int, slot: int = 0) -> bool:
        """Let a claim look, whatever it is told: the database knows."""
        return any(waiters.notify(id, 0) for waiters in LineWaiters.all())


class OrmNeighbours:
    """What this process hears from others of its host, and says to them; all stores share it."""

    def __init__(self) -> None:
        self.start_afresh()

    def start_afresh(self) -> None:
        """In a forked child: hear nothing of what the parent is told."""
        self._users: WeakSet[object] = WeakSet()
        self._not_before = 0.0
        self._heard = remote.Neighbours(_AllWaiters(), CHANNEL.format(pid()))

    def join(self, user: object) -> None:
        """Be there for one more store."""
        self._users.add(user)

    def leave(self, user: object) -> None:
        """Hear nothing any more when the last store is closed."""
        self._users.discard(user)
        if not self._users:
            self._heard.close()

    def need(self) -> None:
        """Somebody waits: listen."""
        if not self._heard.channel and clock.now() >= self._not_before:
            self._heard.listen()
            self._not_before = clock.now() + AGAIN  # the name may be free again in a moment

    def wake(self, id: str, host: str, number: int) -> None:
        """Let a waiter look.

        Args:
            id: of its claim.
            host, number: of its process.
        """
        if host == HOST and number != pid():
            self._heard.send(CHANNEL.format(number), [f"{id} 0"])


neighbours = OrmNeighbours()
in_forked_child(neighbours.start_afresh)
