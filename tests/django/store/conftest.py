"""What the tests of Django's locks share."""

from collections.abc import Iterator

import pytest
from django.apps import apps
from django.conf import settings
from django.db import connections
from django.test import override_settings

from interlock.django.configured import forget_connections
from interlock.runtime import log

collect_ignore = (
    ["test_connections.py", "test_time_outs.py"] if settings.DATABASE == "sqlite" else []
)  # it has no server
collect_ignore += ["test_turns.py"] if settings.DATABASE != "sqlite" else []
if settings.DATABASE != "postgresql":  # others tell nobody
    collect_ignore += ["test_listening.py", "test_folding.py"]
else:
    collect_ignore += ["test_neighbours.py"]  # its server tells them


@pytest.fixture
def settings_for_sqlite(databases: None) -> Iterator[None]:
    """SQLite lets one transaction write at a time: keep the claims in a file of their own there."""
    apart = {"default": {"ALIAS": "other"}} if connections["default"].vendor == "sqlite" else {}
    with override_settings(INTERLOCK=apart):
        yield


@pytest.fixture(autouse=True)
def clean(databases: None) -> Iterator[None]:
    """Leave the tables empty, and no connection of the locks open."""
    yield
    log.divert(None)  # `interlock run` takes the log of its process, which is that of the tests here
    forget_connections(setting="INTERLOCK")
    for alias in ("default", "other"):
        for label in ("interlock", "shelf", "admin"):
            for model in reversed(list(apps.get_app_config(label).get_models())):
                if not model._meta.proxy:
                    model._base_manager.using(alias)._raw_delete(alias)
    connections.close_all()
