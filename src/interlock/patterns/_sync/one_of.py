# Generated from _async/one_of.py by tools/unasync.py; change that one.
"""A lock on one of several items."""

from interlock.client._sync.grants import Grant
from interlock.client._sync.lock import Lock
from interlock.client.arguments import refuse_other_items
from interlock.client.cancel import SupportsIsSet
from interlock.runtime import _threads as rt


class OneOf(Lock):
    """A lock on one of several items; `grant.item` names the item."""

    def _take(
        self, seconds: float | None, owner: rt.Caller, cancel: SupportsIsSet | None = None
    ) -> Grant | None:
        refuse_other_items(self._spec.label, self._client.look(self._spec.key), None)
        grant = self._client.acquire(self._spec, self._options, seconds, owner, cancel)
        if grant is not None:
            try:
                refuse_other_items(self._spec.label, self._client.look(self._spec.key), grant.fence)
            except BaseException:
                rt.finish(grant.release)
                raise
        return grant
