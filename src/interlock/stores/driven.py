"""A store whose steps are generators still, as one that the client knows; it goes with the last of them."""

from typing import Any

from interlock.core.store import Feature
from interlock.runtime import clock


class DrivenStore:
    """As `core.store.Store`.

    Args:
        store: a `core.oldstore.BaseStore`; it forks, and serves several loops, by itself.
    """

    features: frozenset[Feature] = frozenset({"readers", "semaphores"})
    in_process = False
    now = staticmethod(clock.now)

    def __init__(self, store: Any) -> None:
        self.store = store
        self.frees_at_death: bool = store.frees_at_death
        self.lock_in_transaction = store.lock_in_transaction

    def queue(self) -> Any:
        from interlock.stores._sync.driven import DrivenQueue

        return DrivenQueue(self.store)

    def end(self) -> None:
        """Close it, since its client was closed, perhaps in a loop that has none of its queues."""
        self.store.close()

    def aqueue(self) -> Any:
        from interlock.stores._async.driven import AsyncDrivenQueue

        return AsyncDrivenQueue(self.store)


def original(store: Any) -> Any:
    """Return the store itself, if it is one that is driven."""
    return store.store if isinstance(store, DrivenStore) else store


def close_original(store: Any) -> None:
    """Close a store that is driven; the queues of the others end with their loops."""
    if isinstance(store, DrivenStore):
        store.store.close()
