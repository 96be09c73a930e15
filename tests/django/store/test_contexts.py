"""`on_lost` sees the language, the tenant and the database of its own acquire and thread, in both colours."""

import asyncio
import threading
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from asgiref.local import Local
from django.conf import settings
from django.db import connections
from django.test import override_settings
from django.utils import translation
from store.shelf.models import Item

import interlock
from interlock.django import alocks, locks
from interlock.testing.waiting import eventually

tenant = Local()  # as Django keeps the language; asgiref shows it to no other thread, also in a copy of the context
schema: ContextVar[str] = ContextVar("schema")


def _setting(folder: Path) -> dict[str, dict[str, str]]:
    return {"default": {"LOCATION": f"file://{folder}/locks"}}


def _evict(folder: Path, name: str) -> None:
    with interlock.connect(folder / "locks") as other:
        other.evict(name)


def test_on_lost_of_a_thread_has_the_tenant_of_its_request(tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    def lost(grant: Any) -> None:
        seen[grant.name] = translation.get_language() in (grant.name, settings.LANGUAGE_CODE), schema.get()

    def request(language: str) -> None:
        schema.set(f"tenant of {language}")
        with translation.override(language):
            grants.append(locks.lock(language, ttl=1, on_lost=lost).acquire())

    grants: list[Any] = []
    with override_settings(INTERLOCK=_setting(tmp_path)):
        for language in ("de", "fr", "zh-hans"):
            thread = threading.Thread(target=request, args=(language,))
            thread.start()
            thread.join()
            _evict(tmp_path, language)
        eventually(lambda: len(seen) == 3)
    assert seen == {each: (True, f"tenant of {each}") for each in ("de", "fr", "zh-hans")}


def test_on_lost_of_a_task_has_the_context_of_its_request(tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    def lost(grant: Any) -> None:
        seen[grant.name] = translation.get_language(), tenant.name

    async def request(language: str) -> Any:
        tenant.name = f"tenant of {language}"
        with translation.override(language):
            return await alocks.lock(language, ttl=1, on_lost=lost).acquire()

    async def main() -> None:
        grants = [await asyncio.create_task(request(each)) for each in ("de", "fr")]
        for each in ("de", "fr"):
            await asyncio.to_thread(_evict, tmp_path, each)
        await asyncio.to_thread(eventually, lambda: len(seen) == 2)
        assert not any(grant.held for grant in grants)
        await alocks.close()

    with override_settings(INTERLOCK=_setting(tmp_path)):
        asyncio.run(main())
    assert seen == {each: (each, f"tenant of {each}") for each in ("de", "fr")}


def test_on_lost_uses_the_database_by_its_own_thread(tmp_path: Path) -> None:
    used: list[Any] = []

    def lost(grant: Any) -> None:
        try:
            Item.objects.count()
            used.append((threading.current_thread().name, connections["default"].connection))
        except Exception as error:
            used.append((repr(error), None))
        finally:
            connections.close_all()

    Item.objects.count()  # this thread has a connection, which no other thread may use
    mine = connections["default"].connection
    with override_settings(INTERLOCK=_setting(tmp_path)):
        grant = locks.lock("a", ttl=1, on_lost=lost).acquire()
        _evict(tmp_path, "a")
        eventually(lambda: used)
        assert grant is not None
    ((thread, connection),) = used
    assert thread == "interlock-on-lost"
    assert connection is not None
    assert connection is not mine
    assert Item.objects.count() == 0
