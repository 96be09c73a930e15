"""`manage.py setup`: all that the site needs before it is first started."""

import os
import secrets
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand
from django.db import connections

NAME = "admin"


class Command(BaseCommand):
    """Makes the tables, loads the seed data, and makes a user; what is there already stays."""

    help = (
        "Make the tables, load the books, and make the user admin with LIBRARY_ADMIN_PASSWORD or a random password."
    )
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it."""
        for database in settings.DATABASES:
            call_command("migrate", database=database, verbosity=0, skip_checks=True)
            _let_others_read(connections[database])
        call_command("seed", stdout=self.stdout)
        self._make_user()

    def _make_user(self) -> None:
        """Make somebody who may do everything, and tell the password once."""
        users = get_user_model().objects
        if users.filter(username=NAME).exists():
            return
        given = os.environ.get("LIBRARY_ADMIN_PASSWORD")
        password = given or secrets.token_urlsafe(9)
        users.create_superuser(NAME, password=password)
        shown = "as LIBRARY_ADMIN_PASSWORD says" if given else f"{password} (shown only now)"
        self.stdout.write(f"user: {NAME}, password: {shown}")


def _let_others_read(connection: Any) -> None:
    """Let people read a SQLite file while somebody writes it; the file remembers this."""
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA journal_mode = WAL")
