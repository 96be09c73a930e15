"""What the watchdogs of both colours share: what is under watch, and in which portions it is renewed."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from interlock.core.claims import SEPARATOR, Claim
from interlock.core.errors import LockError
from interlock.core.oldstore import Common
from interlock.locks.grants import GONE_THERE, BaseGrant
from interlock.locks.leases import Entry, LeaseTable, Tell
from interlock.runtime import log

G = TypeVar("G", bound=BaseGrant)


def by_node(node_of: Callable[[Claim], object] | None, grants: Sequence[G]) -> dict[object, list[G]]:
    """Return which grants are renewed at which node.

    Args:
        node_of: as in `stores.base.BaseStore`.
        grants: which.
    """
    if node_of is None:
        return {None: list(grants)}
    groups: dict[object, list[G]] = {}
    for grant in grants:
        groups.setdefault(node_of(grant._claim), []).append(grant)
    return groups


def portions(grants: list[G], size: int) -> Iterator[list[G]]:
    """Yield so many at a time, those whose leases end first in front."""
    grants.sort(key=lambda grant: grant._deadline)
    for start in range(0, len(grants), size):
        yield grants[start : start + size]


class BaseWatchdog(Generic[G]):
    """The grants of one connection under watch.

    Args:
        queue: the store.
        tell_lost: called once for each grant that is lost; never fails.
        tell: called with grants, what happened to them, and why, if anybody listens; never fails.
        release: gives a grant back whose block was left without it.
        keeper: the connection, which is kept as long as there is something to watch, so that the exit finds it.
    """

    def __init__(
        self,
        queue: Common,
        tell_lost: Callable[[G], None],
        tell: Tell[G],
        release: Callable[[G], Any],
        keeper: Any,
    ) -> None:
        self._queue = queue
        self._release = release
        self._keeper = keeper
        self._table = LeaseTable(tell_lost, tell)
        self._watched = self._table.watched
        self._stopped = False

    @property
    def grants(self) -> list[G]:
        """The grants under watch."""
        return self._table.live()

    @property
    def entries(self) -> list[Entry[G]]:
        """The claims that the store may have."""
        return self._table.entries()

    def forget(self, entry: Entry[G]) -> None:
        """Forget a claim that has left the store."""
        self._table.forget(entry)

    def remove(self, grant: G) -> bool:
        """Stop watching; safe to repeat; True if it was under watch, so that whoever removes it tells its end."""
        return self._watched.pop(grant.id, None) is not None

    def lost(self, grant: G) -> None:
        """Note that the store no longer has the grant's claim, and tell."""
        self._table.lost(grant, GONE_THERE)

    @staticmethod
    def _warn_of_stay(claim: Claim, error: LockError) -> None:
        """Warn that a claim could not be taken out of the line at the end of its `at_least`."""
        name = claim.spec.key.partition(SEPARATOR)[2]
        log.warn("could not release %r after its `at_least`; its lease ends: %s", name, error)
