"""Which tables are in which file, when the claims have a SQLite file of their own."""

from typing import Any


class LocksApart:
    """The claims of interlock are in `locks`, and everything else is in `default`."""

    def db_for_read(self, model: Any, **hints: Any) -> str:
        """Return the alias for a model."""
        return _alias(model._meta.app_label)

    def db_for_write(self, model: Any, **hints: Any) -> str:
        """Return the alias for a model."""
        return _alias(model._meta.app_label)

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        """True if the tables of an app belong in a database."""
        return db == _alias(app_label)


def _alias(app_label: str) -> str:
    return "locks" if app_label == "interlock" else "default"
