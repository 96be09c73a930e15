"""postgresql+advisory://: advisory locks of a PostgreSQL server, which end with the session that has them."""

import select
from urllib.parse import SplitResult

from interlock.core.errors import StoreError
from interlock.core.oldstore import BaseStore

if not hasattr(select, "poll"):
    raise StoreError("advisory locks need a POSIX system: take postgresql:// here, which does not")

from interlock.stores.advisory.options import options_of
from interlock.stores.advisory.rooms import room_of
from interlock.stores.advisory.store import AdvisoryStore

__all__ = ["AdvisoryStores"]


class AdvisoryStores(BaseStore):
    """What makes stores of URLs."""

    @classmethod
    def from_url(cls, url: SplitResult) -> AdvisoryStore:
        """Use the sessions that this process has with the server; they are opened when they are needed."""
        return AdvisoryStore(room_of(options_of(url)))
