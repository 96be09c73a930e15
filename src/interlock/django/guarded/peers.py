"""Deferred fields that are fetched for many instances at once (Django 6.1 and later, `FETCH_PEERS`).

Django sets the values on the instances, and no method of theirs hears of it; without this their guard would take such
a value for one that somebody has set without reading it, and write it unchecked.
"""

from functools import lru_cache
from typing import Any

from django.db.models.query_utils import DeferredAttribute

from interlock.django.guarded.plan import plan_of
from interlock.django.guarded.snapshot import KEY, of_attributes, snapshot_of


class Noting:
    """A fetch mode that does as another one, and tells the guards what was fetched."""

    __slots__ = ("_mode",)

    track_peers = True

    def __init__(self, mode: Any) -> None:
        self._mode = mode

    def fetch(self, fetcher: Any, instance: Any) -> None:
        """Fetch, as the other mode does."""
        if not isinstance(fetcher, DeferredAttribute):
            self._mode.fetch(fetcher, instance)
            return
        attname = fetcher.field.attname
        found = [instance, *(peer() for peer in instance._state.peers)]
        lacking = [each for each in found if each is not None and attname not in vars(each)]
        self._mode.fetch(fetcher, instance)
        for each in lacking:
            snapshot = snapshot_of(each)
            if snapshot is not None and attname in vars(each):
                values = of_attributes(plan_of(type(each)), each, [attname])
                vars(each)[KEY] = snapshot.with_read(snapshot.db, values)

    def __reduce__(self) -> tuple[Any, ...]:
        return noting, (self._mode,)


@lru_cache
def noting(mode: Any) -> Any:
    """Return the fetch mode that does as `mode` and tells the guards."""
    return mode if isinstance(mode, Noting) else Noting(mode)
