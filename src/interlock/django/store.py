"""`OrmStore`: the store of an entry of INTERLOCK with the LOCATION `orm:`."""

from interlock.django.databases import DatabaseStore, place_of
from interlock.django.record_store import RecordStore
from interlock.storekit.store import Store


class OrmStore(DatabaseStore):
    """The locks of a database by the ORM alone, on any kind of database."""

    def _opened(self) -> Store:
        self.place = place_of(self.alias)
        return RecordStore(self.alias, self._most)
