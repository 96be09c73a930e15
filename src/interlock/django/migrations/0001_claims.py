"""The table of the locks on PostgreSQL, MySQL or MariaDB, as the stores would make it; and that of `orm:`."""

from collections.abc import Sequence

from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import ProjectState

from interlock.stores.mysql import TABLE
from interlock.stores.mysql import ddl as table_of_mysql
from interlock.stores.postgresql.ddl import ddl, statements, undo


class RunOn(migrations.RunSQL):
    """SQL for one kind of database; nothing elsewhere."""

    def __init__(self, vendor: str, sql: Sequence[str], reverse_sql: Sequence[str]) -> None:
        super().__init__(list(sql), list(reverse_sql), hints={"model_name": "claim"})
        self.vendor = vendor

    def database_forwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
        if schema_editor.connection.vendor == self.vendor:
            super().database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
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
                "base_manager_name": "objects",
                "default_permissions": ("view",),
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="Record",
            fields=[
                ("number", models.BigAutoField(primary_key=True, serialize=False)),
                ("claim", models.CharField(max_length=64, unique=True)),
                ("key", models.CharField(db_index=True, max_length=64)),
                ("namespace", models.TextField(blank=True)),
                ("name", models.TextField()),
                ("state", models.CharField(max_length=7)),
                ("units", models.BigIntegerField()),
                ("capacity", models.BigIntegerField()),
                ("fence", models.BigIntegerField(default=0)),
                ("host", models.CharField(blank=True, max_length=255)),
                ("pid", models.BigIntegerField()),
                ("thread", models.CharField(blank=True, max_length=255)),
                ("label", models.CharField(blank=True, max_length=255)),
                ("since", models.BigIntegerField()),
                ("until", models.DateTimeField()),
            ],
            options={"db_table": "interlock_record", "default_permissions": ()},
        ),
        RunOn("postgresql", statements(ddl()), statements(undo())),
        RunOn("mysql", [table_of_mysql()], [f"DROP TABLE IF EXISTS `{TABLE}`"]),
    ]
