"""etcd://: locks in an etcd cluster, over its JSON gateway."""

from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult

from interlock.core._async.protocols import AsyncQueue
from interlock.core._sync.protocols import Queue
from interlock.core.claims import Claim
from interlock.core.errors import install
from interlock.core.queue import ALL
from interlock.storekit.store import Store, require_module

if TYPE_CHECKING:
    from interlock.stores.etcd.options import EtcdOptions


class EtcdStore(Store):
    """An etcd cluster.

    Args:
        options: the members, and how to connect.
    """

    features = ALL

    def __init__(self, options: "EtcdOptions") -> None:
        self._options = options

    @classmethod
    def from_url(cls, url: SplitResult) -> "EtcdStore":
        """Connect to etcd://user:password@host:2379,host2:2379/prefix, or with TLS to etcds://…"""
        require_module("httpx", f"Locks in etcd need httpx. Run: {install('etcd')}")
        from interlock.stores.etcd.options import options_of

        return cls(options_of(url))

    def queue(self) -> Queue:
        """See `Store.queue`."""
        from interlock.stores.etcd._sync.queue import EtcdQueue

        return EtcdQueue(self._options)

    def aqueue(self) -> AsyncQueue:
        """See `Store.aqueue`."""
        from interlock.stores.etcd._async.queue import AsyncEtcdQueue

        return AsyncEtcdQueue(self._options)

    def still_held(self, claim: Claim) -> dict[str, Any]:
        """Return a comparison for an etcd transaction, true while the claim exists."""
        from interlock.stores.etcd.wire import CLAIMS_FOLDER, folder_of, is_there

        return is_there(folder_of(self._options.prefix, claim.spec.key) + CLAIMS_FOLDER + claim.id)
