"""Fencing in etcd: run your own transaction only while a lock is held."""

from typing import Any

from interlock.client.base_grant import BaseGrant
from interlock.core.errors import InvalidArgument

__all__ = ["still_held"]


def still_held(grant: BaseGrant) -> dict[str, Any]:
    """Return an etcd comparison (JSON gateway) that is true while the claim exists.

    Args:
        grant: the grant of a lock in the same cluster.

    Raises:
        InvalidArgument: the grant is of another store.
    """
    from interlock.stores.etcd import EtcdStore

    store = grant._client.store
    if not isinstance(store, EtcdStore):
        raise InvalidArgument("still_held() needs a grant of etcd://, from the cluster of the transaction.")
    return store.still_held(grant._claim)
