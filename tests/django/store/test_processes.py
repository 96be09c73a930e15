"""The locks of a database between real processes, and on the locks' own connections."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from django import VERSION
from django.core.handlers.base import BaseHandler
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory, override_settings
from django.urls import path
from store.shelf.models import Item

from interlock.django import locks, occupies
from interlock.testing.waiting import moment, since

PROGRAM = Path(__file__).with_name("counting.py")


def surroundings(**options: Any) -> dict[str, str]:
    """Return the environment of a process on the databases of this one, with more options."""
    fields = ("ENGINE", "NAME", "HOST", "PORT", "USER", "PASSWORD", "OPTIONS")
    databases = {
        alias: {field: copy(connections[alias].settings_dict[field]) for field in fields}
        for alias in ("default", "other")
    }
    databases["default"]["OPTIONS"] |= options
    return {**os.environ, "INTERLOCK_TEST_DATABASES": json.dumps(databases, default=str)}


def start(work: str, rounds: int, **options: Any) -> "subprocess.Popen[str]":
    """Start a process on the databases of this one."""
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), work, str(rounds)],
        env=surroundings(**options),
        stdout=subprocess.PIPE,
        text=True,
    )


POOL = {"pool": {"min_size": 1, "max_size": 2}}
HAS_POOLS = connections["default"].vendor == "postgresql" and VERSION >= (5, 1) and find_spec("psycopg") is not None


@pytest.mark.parametrize("options", [{}, POOL] if HAS_POOLS else [{}], ids=["plain", "pool"][: 1 + HAS_POOLS])
def test_processes_lose_no_update(options: dict[str, Any]) -> None:
    Item.objects.create(pk=1, name="Emma")
    processes = [start("add", 15, **options) for _ in range(3)]
    assert [process.wait(120) for process in processes] == [0, 0, 0]
    for process in processes:
        process.communicate()
    assert Item.objects.get().count == 45


def test_a_lock_of_a_killed_process_is_free_after_its_lease() -> None:
    process = start("hold", 60)
    with process.stdout:
        assert process.stdout.readline() == "held\n"
        assert locks.lock("held").acquire(timeout=0) is None
        process.kill()
        process.wait()
    killed = moment()
    with locks.lock("held", timeout=10):
        assert since(killed) < 3


def test_a_forked_child_leaves_its_parents_connections_alone() -> None:
    with locks.lock("parent") as grant:
        child = os.fork()
        if child == 0:  # pragma: no cover - another process
            status = 1
            try:
                with locks.lock("child", timeout=10):
                    status = 0 if locks.lock("parent").acquire(timeout=0) is None else 2
                locks.close()
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert grant.renew()
        assert [view.name for view in locks.claims()] == ["parent"]


def test_a_rollback_does_not_take_a_claim_back() -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        grant = locks.lock("a").acquire()
        raise ZeroDivisionError
    assert grant.held
    assert [view.name for view in locks.claims()] == ["a"]
    grant.release()


@occupies("page")
def page(request: HttpRequest) -> HttpResponse:
    """A view that adds one to the only item."""
    item = Item.objects.get()
    Item.objects.filter(pk=item.pk).update(count=item.count + 1)
    return HttpResponse(f"{connections['default'].in_atomic_block}")


urlpatterns = [path("page", page)]


def test_requests_under_atomic_requests_lose_no_update(monkeypatch: pytest.MonkeyPatch) -> None:
    Item.objects.create(pk=1, name="Emma")

    def client(_: int) -> bytes:
        try:
            handler = BaseHandler()
            handler.load_middleware()
            return bytes(handler.get_response(RequestFactory().get("/page")).content)
        finally:
            connections.close_all()

    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)
    with override_settings(ROOT_URLCONF=__name__, MIDDLEWARE=[]), ThreadPoolExecutor(6) as pool:
        assert set(pool.map(client, range(24))) == {b"True"}
    assert Item.objects.get().count == 24
