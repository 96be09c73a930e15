"""`OrmStore`: what an entry of INTERLOCK gets whose LOCATION is `orm:`."""

from interlock.core.store import Store
from interlock.django.conf import database_of_claims
from interlock.django.databases import MOST, DatabaseStore, place_of
from interlock.django.records import RecordStore


class OrmStore(DatabaseStore):
    """The locks of a database by the ORM alone, whatever kind of database it is.

    Args:
        alias: of the database in DATABASES; None for the one that the routers write claims to.
        max_connections: of a process to it, besides those of the site.
    """

    def __init__(self, alias: str | None = None, max_connections: int = MOST) -> None:
        super().__init__(alias or database_of_claims(), max_connections)

    def _opened(self) -> Store:
        self.place = place_of(self.alias)
        return RecordStore(self.alias, self._most)
