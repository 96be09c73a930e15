"""Rows of different tenants, shards or values of NAME have different locks."""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connections
from django.test import override_settings
from store.shelf.models import Item
from store.test_occupy import elsewhere, is_taken

from interlock import InvalidArgument
from interlock.django import locks, occupy
from interlock.django.testing import assert_held, override_locks
from tests.servers import PostgresServer, need

TENANTS = Path(__file__).with_name("tenant_site.py")
pytestmark = pytest.mark.usefixtures("in_memory")  # a store that two databases share


def as_tenant(name: str) -> Callable[[], None]:
    return lambda: setattr(connections["default"], "schema_name", name)


def test_two_tenants_never_block_each_other() -> None:
    """The connection has a `schema_name`, like that of django-tenants."""
    item = Item.objects.create(name="Emma")

    def attempts() -> None:
        as_tenant("anna")()
        with occupy(item):
            found = locks.claims()[0].name
            taken = [is_taken(Item, item.pk, as_tenant(name)) for name in ("anna", "ben")]
        assert taken == [True, False]
        assert found == f"anna/shelf.item:{item.pk}"

    if connections["default"].vendor == "postgresql":
        pytest.skip("the table is in one schema here, which all share; see test_django_tenants")
    elsewhere(attempts).result(30)


class Shards:
    """Sends items to two databases, by their names."""

    def db_for_write(self, model: Any, instance: Any = None, **hints: Any) -> str | None:
        return {"Emma": "default", "Persuasion": "other"}[instance.name] if model is Item and instance else None

    db_for_read = db_for_write


def test_rows_of_two_shards_never_block_each_other() -> None:
    with override_settings(DATABASE_ROUTERS=[Shards()]):
        emma = Item.objects.using("default").create(pk=1, name="Emma")
        persuasion = Item.objects.using("other").create(pk=1, name="Persuasion")
        with occupy(emma), occupy(persuasion):
            assert {claim.name for claim in locks.claims()} == {"shelf.item:1", "other/shelf.item:1"}
            assert_held(emma)
            assert_held(persuasion)
            assert is_taken(Item, 1)
        with occupy(persuasion):
            assert not is_taken(Item, 1)


def name_of_item(item: Item) -> str:
    return f"{item.name}:{item.pk}"


@pytest.mark.parametrize("by_instance", [True, False])
def test_NAME_says_how_the_lock_of_a_row_is_called(by_instance: bool) -> None:
    item = Item.objects.create(name="Emma")
    named = {"default": {"LOCATION": "memory://named", "NAME": f"{__name__}.name_of_item"}}
    with override_settings(INTERLOCK=named), override_locks():
        with occupy(item) if by_instance else occupy(Item, pk=item.pk):
            assert [claim.name for claim in locks.claims()] == [f"Emma:{item.pk}"]
            assert_held(item)
        with pytest.raises(Item.DoesNotExist), occupy(Item, pk=0):
            raise AssertionError
        assert locks.claims() == []


@pytest.mark.parametrize("path", ["nowhere.name_of", f"{__name__}.TENANTS", f"{__name__}.nothing", 5])
def test_a_NAME_that_makes_no_sense_is_said(path: Any) -> None:
    item = Item.objects.create(name="Emma")
    named = {"default": {"LOCATION": "memory://named", "NAME": path}}
    with override_settings(INTERLOCK=named), override_locks():
        with pytest.raises(InvalidArgument, match="NAME must be the path of a function of an instance"), occupy(item):
            raise AssertionError


if settings.DATABASE == "postgresql" and find_spec("django_tenants") is not None:

    def test_django_tenants() -> None:
        need("postgres")
        with PostgresServer() as server:
            where = {"HOST": server.host, "PORT": str(server.port), "USER": server.user}
            done = subprocess.run(
                [sys.executable, str(TENANTS)],
                env=os.environ | {f"TENANTS_{key}": value for key, value in where.items()},
                capture_output=True,
                text=True,
                timeout=120,
            )
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == ["apart", "shared", "editors"]
