"""The table of the locks, where the database is PostgreSQL, MySQL or MariaDB: as the stores would make it."""

from collections.abc import Sequence
from typing import Any

from django.db import migrations, models

from interlock.stores.mysql.table import TABLE
from interlock.stores.mysql.table import ddl as table_of_mysql
from interlock.stores.postgresql.ddl import ddl, statements, undo


class RunOn(migrations.RunSQL):
    """SQL for one kind of database; nothing elsewhere."""

    def __init__(self, vendor: str, sql: Sequence[str], reverse_sql: Sequence[str]) -> None:
        super().__init__(list(sql), list(reverse_sql), hints={"model_name": "claim"})
        self.vendor = vendor

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.connection.vendor == self.vendor:
            super().database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.connection.vendor == self.vendor:
            super().database_backwards(app_label, schema_editor, from_state, to_state)


class Migration(migrations.Migration):
    initial = True
    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Claim",
            fields=[
                ("claim", models.CharField(max_length=64, primary_key=True, serialize=False, verbose_name="id")),
                ("name", models.TextField()),
            ],
            options={
                "permissions": [("evict_claim", "Can evict claims")],
                "default_permissions": ("view",),
                "managed": False,
            },
        ),
        RunOn("postgresql", statements(ddl()), statements(undo())),
        RunOn("mysql", [table_of_mysql()], [f"DROP TABLE IF EXISTS `{TABLE}`"]),
    ]
