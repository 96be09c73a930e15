"""`Row`: one row of a model to occupy, and the name of its lock."""

from functools import cache
from typing import Any, Generic, Never, TypeVar
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import DEFAULT_DB_ALIAS, connections, models, router
from django.utils.module_loading import import_string

from interlock.core.claims import checked_name
from interlock.core.errors import InvalidArgument
from interlock.django.conf import DEFAULT, places

M = TypeVar("M", bound=models.Model, covariant=True)

_COMPARED_BY_VALUE = (int, UUID)
"""Types of keys whose equality in Python is the same as in the database."""

KEY_ERRORS = (ValidationError, TypeError, ValueError, ArithmeticError, AttributeError, LookupError)
"""The exceptions of fields for values that they don't accept."""


class RowName(Generic[M]):
    """One row to occupy.

    Args:
        model: its model.
        pk: its primary key.
        instance: the instance to refresh; None to load a new one.
    """

    def __init__(self, model: type[M], pk: object, instance: M | None = None) -> None:
        self._model = model
        self._instance = instance
        try:
            self._pk = _key_of(model._meta.pk, pk)
        except KEY_ERRORS as error:
            raise InvalidArgument(f"{pk!r} is not a valid primary key of {model._meta.label}: {error}") from error
        self.using = router.db_for_write(model, **({} if instance is None else {"instance": instance}))

    def name(self, alias: str = DEFAULT) -> str:
        """Return the lock's name: the same for a model, its proxies, and the models that inherit its table.

        Each row must have one name, however the caller writes its key: a column may treat different texts as equal,
        so the database is asked for the key as stored in the row. Rows of different tenants or shards have different
        names.

        Args:
            alias: the alias in INTERLOCK; its NAME may be a function that makes the name.

        Raises:
            Model.DoesNotExist: the row does not exist.
            InvalidArgument: NAME is not valid.
        """
        own = places().get(alias, {}).get("NAME")
        if own is not None:
            return _name_by(own, alias, self._instance or self.read())
        model = self._model._meta.concrete_model or self._model
        while model._meta.pk.remote_field is not None and getattr(model._meta.pk.remote_field, "parent_link", False):
            model = model._meta.pk.remote_field.model
        pk = self._pk
        parts = pk if isinstance(pk, tuple) else (pk,)
        if any(type(part) not in _COMPARED_BY_VALUE for part in parts):
            found = model._base_manager.using(self.using).filter(pk=pk).values_list("pk", flat=True).first()
            if found is None:
                raise self._model.DoesNotExist(f"{self._model._meta.label} {pk!r} does not exist")
            pk = found
        return "/".join([*_apart(model, self.using), f"{model._meta.label_lower}:{pk}"])

    def read(self) -> M:
        """Read the present row, from the database to which writes go.

        Raises:
            Model.DoesNotExist: the row was deleted.
        """
        if self._instance is None:
            return self._model._base_manager.using(self.using).get(pk=self._pk)
        self._instance.refresh_from_db(using=self.using)
        return self._instance


def row_of(instance: models.Model) -> RowName[Any]:
    """Return the row of an instance.

    Raises:
        InvalidArgument: the object is not an instance of a model, or was never saved.
    """
    if not isinstance(instance, models.Model):
        raise InvalidArgument(f"occupy() needs instances of models, not {type(instance).__name__}.")
    if instance.pk is None or instance._state.adding:
        raise InvalidArgument(
            f"This {instance._meta.label} was never saved, so it has no row to occupy. Save it first."
        )
    return RowName(type(instance), instance.pk, instance)


def _apart(model: type[models.Model], using: str) -> list[str]:
    """Return what distinguishes a table from others of the same model: the alias of its database, and its schema."""
    apart = []
    if using != DEFAULT_DB_ALIAS and sum(router.allow_migrate_model(alias, model) for alias in connections) > 1:
        apart.append(using)
    tenant = getattr(connections[using], "schema_name", None)  # set by django-tenants and similar packages
    if tenant is not None:
        apart.append(_schema_of(using, model._meta.db_table, tenant))
    return apart


@cache
def _schema_of(using: str, table: str, tenant: str) -> str:
    """Return the schema in which a tenant finds a table: its own, or the one with the tables of all tenants."""
    connection = connections[using]
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = to_regclass(%s)",
                [connection.ops.quote_name(table)],
            )
            return str((cursor.fetchone() or [tenant])[0])
    return tenant


def _name_by(path: str, alias: str, instance: models.Model) -> str:
    """Return the name of a row's lock from the function at the import path in NAME."""
    try:
        name = import_string(path)(instance)
    except (ImportError, AttributeError, TypeError) as error:
        raise InvalidArgument(
            f"INTERLOCK[{alias!r}]: NAME must be the path of a function of an instance, not {path!r}: {error}"
        ) from error
    return checked_name(name)


def _key_of(field: "models.Field[Never, object]", value: Any) -> object:
    """Return a key as the Python value of its field; a composite key is a tuple."""
    parts = getattr(field, "fields", None)
    if parts is not None:  # a composite key
        if isinstance(value, str):
            value = field.to_python(value)
        return tuple(_key_of(part, each) for part, each in zip(parts, value, strict=True))
    key = field.to_python(value)
    if key is None:
        raise ValueError("it is None")
    return key
