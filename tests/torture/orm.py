"""Locks in Django's ORM for torture tests: the URL names the database; `python -m` creates its tables."""

import sys
from typing import Any
from urllib.parse import urlsplit

import django
from django.conf import settings

from interlock.api._async.locks import AsyncLocks
from interlock.api._sync.locks import Locks
from interlock.stores.postgresql import options
from tests.torture.plan import IO

ENGINES = {"postgresql": "postgresql", "mariadb": "mysql"}


def configure(url: str) -> None:
    """Set Django up for this process, once."""
    if settings.configured:
        return
    options.IO_TIMEOUT = IO  # as the URLs of the other stores say; a site has no setting for it
    parts = urlsplit(url)
    settings.configure(
        DATABASES={
            "default": {
                "ENGINE": f"django.db.backends.{ENGINES[parts.scheme]}",
                "NAME": parts.path.removeprefix("/"),
                "HOST": parts.hostname,
                "PORT": str(parts.port),
                "USER": parts.username,
                "OPTIONS": {"connect_timeout": 2},
            }
        },
        INSTALLED_APPS=["interlock.django"],
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        USE_TZ=True,
    )
    django.setup()


def connect(url: str, **how: Any) -> Locks:
    """As `interlock.connect`."""
    configure(url)
    from interlock.django.databases import DatabaseStore

    return Locks(DatabaseStore("default"), **how)


def aconnect(url: str, **how: Any) -> AsyncLocks:
    """As `interlock.aconnect`."""
    configure(url)
    from interlock.django.databases import DatabaseStore

    return AsyncLocks(DatabaseStore("default"), **how)


def main(url: str) -> None:
    """Create the tables."""
    configure(url)
    from django.core.management import call_command

    call_command("migrate", verbosity=0, skip_checks=True)


if __name__ == "__main__":
    main(sys.argv[1])
