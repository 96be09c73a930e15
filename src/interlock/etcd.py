"""Fencing in etcd: let a transaction of your own be done only while a lock is held."""

from typing import Any

from interlock.client.base_grant import BaseGrant
from interlock.core.errors import InvalidArgument

__all__ = ["still_held"]


def still_held(grant: BaseGrant) -> dict[str, Any]:
    """Return a comparison for a transaction of etcd, of the JSON gateway's form: it is true while the claim is there.

    Args:
        grant: of a lock in the same cluster.

    Raises:
        InvalidArgument: the grant is of another store.
    """
    from interlock.stores.etcd import EtcdStore

    store = grant._client.store
    if not isinstance(store, EtcdStore):
        raise InvalidArgument("still_held() needs a grant of etcd://, from the cluster of the transaction.")
    return store.still_held(grant._claim)
