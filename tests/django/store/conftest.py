"""Fixtures of the tests of Django's locks."""

from collections.abc import Iterator

import pytest
from django.apps import apps
from django.conf import settings
from django.db import connections
from store.shelf.models import Item
from store.table_changes import forget_lines

from interlock.django.configured import forget_connections
from interlock.runtime import log

collect_ignore = (
    ["test_connections.py", "test_databases.py"] if settings.DATABASE == "sqlite" else []
)  # it has no server


@pytest.fixture(autouse=True)
def clean(databases: None) -> Iterator[None]:
    """Empty the tables, and close the connections of the locks."""
    yield
    log.sink = None  # `interlock run` takes the log of its process, which is that of the tests here
    for alias in ("default", "other"):
        for label in ("interlock", "shelf", "admin"):
            for model in reversed(list(apps.get_app_config(label).get_models())):
                if not model._meta.proxy and model._meta.managed:
                    model._base_manager.using(alias)._raw_delete(alias)
    forget_lines()
    forget_connections(setting="INTERLOCK")
    connections.close_all()


@pytest.fixture
def item() -> Item:
    return Item.objects.create(name="Emma")
