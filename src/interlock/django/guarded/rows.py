"""Rows: locked and read, and whether a snapshot is of one."""

from collections.abc import Sequence
from typing import Any

from django.db import router
from django.db.models import F

from interlock.django.guarded.plan import key_fields
from interlock.django.guarded.snapshot import Snapshot
from interlock.django.guarded.values import same, thaw


def locked_values(rows: Any, fields: list[Any], connection: Any, locks: bool = True) -> Sequence[Any] | None:
    """Lock a row until the end of the transaction, and return the values of some of its fields.

    Args:
        rows: a query set of that one row.
        fields: of the model of `rows`.
        locks: False if all of a database without row locks is locked already.

    Returns:
        The values; None if there is no such row.
    """
    if connection.features.has_select_for_update:
        rows = rows.select_for_update()
    elif locks:
        # SQLite: any UPDATE locks all of the database, and waits its turn, which a SELECT before it would prevent.
        rows.update(**{each.name: F(each.name) for each in _idle_fields(rows.model._meta)})
    found: list[Sequence[Any]] = list(rows.values_list("pk", *(field.attname for field in fields)))
    return found[0][1:] if found else None


def _idle_fields(meta: Any) -> list[Any]:
    """Return a field of a table that can be set to itself: the key, unless it is made of several."""
    keys = key_fields(meta)
    return keys if len(keys) == 1 else [each for each in meta.local_concrete_fields if each not in keys][:1]


def knows_row(snapshot: Snapshot, instance: Any, meta: Any, using: str) -> bool:
    """True if a snapshot is of the very row of a table that an instance would be saved to."""
    known = all(field.attname in snapshot.values for field in key_fields(meta))
    return known and may_be_of(snapshot, instance, meta, using)


def may_be_of(snapshot: Snapshot, instance: Any, meta: Any, using: str) -> bool:
    """True unless a snapshot is of another database, or of another row of a table."""
    data = vars(instance)
    known = snapshot.values
    return is_of_database(snapshot, instance, using) and all(
        same(field, thaw(known[field.attname]), data.get(field.attname))
        for field in key_fields(meta)
        if field.attname in known
    )


def is_of_database(snapshot: Snapshot, instance: Any, using: str) -> bool:
    """True if a snapshot is of the database of an alias.

    What was read from a replica is of the database to which the routers send the instance's writes.
    """
    if snapshot.db == using:
        return True
    model = type(instance)
    return using in (router.db_for_write(model, instance=instance), router.db_for_read(model, instance=instance))
