"""Functions on a guarded instance: what a save would write, what the last save wrote, a tag of the state read."""

from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Context, Decimal
from typing import Any

from django.db import connections, router, transaction
from django.utils.crypto import salted_hmac
from django.utils.encoding import force_str

from interlock.django.guarded.conflicts import FieldConflict, StaleObject
from interlock.django.guarded.model import Guarded
from interlock.django.guarded.plan import plan_of
from interlock.django.guarded.saving import WRITTEN, changed, locked_values
from interlock.django.guarded.snapshot import snapshot_of
from interlock.django.guarded.values import AnyField, prepared, same, thaw, thaw_held

_EXACT = Context(prec=1000)


def changes(instance: Guarded) -> dict[str, tuple[Any, Any]]:
    """Return what a save would write now: (original, mine) by the name of the field.

    Not included are fields that were never read, although a save would write them, and fields that compute their
    value during the save, as with `auto_now`.
    """
    snapshot, plan = snapshot_of(instance), plan_of(type(instance))
    if snapshot is None:
        return {}
    known = [each for each in plan.attnames if each in snapshot.values and each in vars(instance)]
    mine = {attname: getattr(instance, attname) for attname in known if attname not in plan.computing}
    return {
        plan.by_attname[attname].name: (thaw(snapshot.values[attname]), mine[attname])
        for attname in changed(instance, plan, snapshot, mine)
    }


def written(instance: Guarded) -> frozenset[str]:
    """Return the names of the fields that the last save wrote; also for use in a `post_save` receiver.

    The signal's own `update_fields` are those that the caller passed to `save()`, as Django documents it.
    """
    found: frozenset[str] = vars(instance).get(WRITTEN, frozenset())
    return found


def verify(instance: Guarded) -> None:
    """Lock the row of an instance, and check that it still has the values that were read; call it in a transaction.

    `LAST_WINS` fields, and fields that compute their values, are not checked.

    Raises:
        StaleObject: the row has other values, or is gone.
        TransactionManagementError: there is no transaction.
        ValueError: the instance was never read or saved.
    """
    snapshot = snapshot_of(instance)
    if snapshot is None:
        raise ValueError(f"{instance._meta.label} can't be verified: it was neither read nor saved before")
    using = router.db_for_write(type(instance), instance=instance)
    connection = connections[using]
    if not connection.in_atomic_block:
        raise transaction.TransactionManagementError(
            "verify() locks the row until the end of a transaction: begin one"
        )
    rows = type(instance)._base_manager.using(using).filter(pk=instance.pk)
    fields = [field for field in plan_of(type(instance)).checked() if field.attname in snapshot.values]
    values = locked_values(rows, fields, connection)
    if values is None:
        raise StaleObject(instance, deleted=True)
    found = {}
    for field, theirs in zip(fields, values, strict=True):
        original = thaw_held(snapshot.values[field.attname])
        if not same(field, original, theirs, ordered=False):
            found[field.name] = FieldConflict(original, getattr(instance, field.attname), theirs)
    if found:
        raise StaleObject(instance, found)


def state_tag(instance: Guarded, fields: Iterable[str] | None = None) -> str:
    """Return a short text that identifies the state in which an instance was last read or saved.

    Two instances of a row have the same tag exactly if all their guarded fields are equal; `LAST_WINS` fields, and
    fields that compute their values, don't count. The tag is keyed with SECRET_KEY, so that values can't be found out
    by trying.

    Args:
        instance: the guarded instance.
        fields: the names of the fields that count; None for all guarded fields.
    """
    plan = plan_of(type(instance))
    wanted = None if fields is None else set(fields)
    counted = [field for field in plan.checked() if wanted is None or field.name in wanted]
    for field in counted:
        getattr(instance, field.attname)  # loads a deferred field
    snapshot = snapshot_of(instance)
    known = snapshot.values if snapshot is not None else {}
    model: Any = instance._meta.concrete_model
    said = [f"{model._meta.label_lower} {instance.pk!r}"]
    for field in counted:
        text = _text(field, thaw_held(known.get(field.attname)))
        # With the length, no other split of the text gives the same tag.
        said.append(f"{field.attname} {len(text)} {text}")
    return salted_hmac("interlock.state_tag", "\n".join(said), algorithm="sha256").hexdigest()[:32]


def _text(field: AnyField, value: object) -> str:
    """Return a text that is the same for all values that the database takes for equal."""
    value = prepared(field, value, ordered=False)
    if isinstance(value, Decimal) and value.is_finite():
        places = getattr(field, "decimal_places", None)
        value = value if places is None else value.quantize(Decimal(1).scaleb(-places), context=_EXACT)
    elif isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC)
    elif isinstance(value, bytes):
        return value.hex()
    return "null" if value is None else "=" + force_str(value)
