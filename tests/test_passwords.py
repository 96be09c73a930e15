"""A password appears in no message and in no repr, in any part of a URL, even in an invalid one."""

import asyncio
import traceback
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
import redis
import redis.asyncio
import valkey

import interlock
from interlock.cli import main
from interlock.core.redaction import described, masked
from interlock.stores.redis.settings import settings_of

SECRET = "s9cret"
# Also parts of a password, between characters that end the host of a URL.
ODD = [
    "s9cret",
    "s9/cret",
    "s9#cret",
    "s9?cret",
    "s9@cret",
    "s9[cret",
    "s9:cret",
    "s9/c?r#s9c@ret",
    "12/s9cret",
    "s9℀cret",
    "s9%cret",
    "s9 cret",
]
TELLTALE = ("s9", "cret")


def shown(error: BaseException) -> str:
    """All text that a log shows for an error."""
    return "".join(traceback.format_exception(error)) + repr(error)


def try_to_lock(url: str) -> None:
    with interlock.connect(url) as locks:
        locks.lock("x").acquire(timeout=0)


async def atry_to_lock(url: str) -> None:
    async with interlock.aconnect(url) as locks:
        await locks.lock("x").acquire(timeout=0)


@pytest.mark.parametrize("password", ODD)
@pytest.mark.parametrize(
    "url",
    [
        "redis://me:{}@127.0.0.1:1/0", "redis://:{}@127.0.0.1:1", "redis://{}@127.0.0.1:1/", "redis://me:{}@127.0.0.1:port/0",
        "redis:me:{}@127.0.0.1", "redis:/me:{}@127.0.0.1", "redis:///me:{}@host", "me:{}@127.0.0.1:1", "nonsense://me:{}@host/0",
        "rediss://me:{}@127.0.0.1:1/0?ssl_cert_reqs=nonsense", "redis://127.0.0.1:1/0?password={}&socket_timeout=soon",
        "redis+sentinel://me:{}@127.0.0.1:port/x", "redis+sentinel://me:{}@127.0.0.1", "redis+cluster://me:{}@127.0.0.1:1",
        "valkey://me:{}@127.0.0.1:1/0", "valkey+cluster://me:{}@127.0.0.1:port", "file://me:{}@host/folder",
        "unix://me:{}@/no/such/socket?db=x",
        "postgresql://me:{}@127.0.0.1:1/db", "postgresql:///me:{}@host", "postgresql://127.0.0.1:1/db?password={}",
        "postgresql://me:{}@127.0.0.1:port/db", "postgresql+psycopg://me:{}@127.0.0.1:1/db?colour=blue",
        "postgresql+advisory://me:{}@127.0.0.1:1/db", "postgresql+advisory://me:{}@127.0.0.1:1/db?max_locks=x",
        "mysql://me:{}@127.0.0.1:1/db", "mysql://me:{}@127.0.0.1:port/db", "mariadb://me:{}@127.0.0.1:1/db?colour=blue",
        "mysql+pymysql://me:{}@127.0.0.1:1", "mysql+advisory://me:{}@127.0.0.1:1/db",
        "mariadb+advisory://me:{}@127.0.0.1:port/db",
    ],
)  # fmt: skip
def test_a_wrong_url_is_told_without_its_password(url: str, password: str, caplog: pytest.LogCaptureFixture) -> None:
    given = url.format(password)
    for attempt in (lambda: try_to_lock(given), lambda: asyncio.run(atry_to_lock(given))):
        with pytest.raises(interlock.LockError) as caught:
            attempt()
        told: BaseException | None = caught.value
        while told is not None:  # also errors that a traceback omits
            text = f"{told} {told!r}"
            assert not any(part in text for part in TELLTALE), text
            told = told.__cause__ or told.__context__
    assert not any(part in caplog.text for part in TELLTALE), caplog.text


def test_a_password_that_the_server_refuses_is_not_told() -> None:
    from tests.servers import RedisServer, need

    need("valkey")
    with RedisServer("valkey") as server:
        url = f"redis://nobody:{SECRET}@{server.host}:{server.port}/0"
        with interlock.connect(url) as locks, pytest.raises(interlock.StoreError) as caught:
            locks.lock("x").acquire()
        assert SECRET not in shown(caught.value)


def test_no_repr_shows_it() -> None:
    from interlock.django.conf import StoreSettings

    url = f"redis://me:{SECRET}@127.0.0.1:1/0"
    things: list[Any] = [settings_of(urlsplit(url))]
    things += [StoreSettings(url, None, {"password": SECRET}, "", 30.0)]
    connected: list[Any] = []
    for scheme in ("redis", "postgresql", "mysql", "postgresql+advisory", "mysql+advisory"):
        url = f"{scheme}://me:{SECRET}@127.0.0.1:1/0"
        connected += [interlock.connect(url), interlock.aconnect(url)]
    for locks in connected:
        things += [locks, locks.store, locks.lock("x")]
    seen = 0
    while seen < len(things):  # and all that they are made of
        thing = things[seen]
        seen += 1
        inner = list(getattr(thing, "__dict__", {}).values())
        inner += [getattr(thing, slot, None) for slot in getattr(thing, "__slots__", ())]
        ours = [each for each in inner if type(each).__module__.startswith("interlock")]
        things += [each for each in ours if not any(each is other for other in things)]
    assert seen > 10
    for thing in things:
        assert SECRET not in repr(thing), type(thing)
    for locks in connected:
        closing = locks.close()
        if closing is not None:
            asyncio.run(closing)


@pytest.mark.parametrize("make", [redis.Redis, valkey.Valkey, redis.asyncio.Redis])
def test_the_error_for_a_wrong_client_shows_no_settings(make: Any) -> None:
    from interlock.optimistic import atransact, transact

    client = make(password=SECRET, username="me")
    connect = interlock.connect if ".asyncio" in make.__module__ else interlock.aconnect
    with pytest.raises(interlock.InvalidArgument) as caught:
        connect(client)
    assert SECRET not in shown(caught.value)
    assert make.__name__ in str(caught.value)
    with pytest.raises(interlock.InvalidArgument) as caught:
        if connect is interlock.connect:
            transact(client, lambda tx: None)
        else:
            atransact(client, lambda tx: None).send(None)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "wrong", [f"redis://me:{SECRET}@h".encode(), [f"redis://me:{SECRET}@h"], {"password": SECRET}]
)
def test_what_is_no_url_at_all_is_told_without_what_it_holds(wrong: object) -> None:
    with pytest.raises(interlock.InvalidArgument) as caught:
        interlock.connect(wrong)
    assert SECRET not in str(caught.value)
    assert type(wrong).__name__ in str(caught.value)


@pytest.mark.parametrize(
    "words", [["ls"], ["show", "x"], ["evict", "x"], ["doctor"], ["doctor", "--json"], ["watch"], ["demo"],
              ["run", "-v", "x", "--", "true"]]
)  # fmt: skip
@pytest.mark.parametrize(
    "url", [f"redis://me:{SECRET}@127.0.0.1:1/0", f"redis:me:{SECRET}@h", f"redis://me:{SECRET}@h:p"]
)
def test_the_command_does_not_show_it(capfd: pytest.CaptureFixture[str], words: list[str], url: str) -> None:
    status = main([words[0], "--store", url, *words[1:]])
    printed, errors = capfd.readouterr()
    assert status in (64, 70, 75)
    assert printed + errors
    assert SECRET not in printed + errors


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis://me:secret@host:1/0?x=1", "redis://me:***@host:1/0?x=1"),
        ("redis://:secret@host", "redis://:***@host"),
        ("redis://secret@host", "redis://***@host"),
        ("redis://me:s@c/r?t#@host", "redis://me:***@host"),
        ("redis://host/0?password=secret&db=1", "redis://host/0?password=***&db=1"),
        ("redis://host/0?db=1&ssl_password=secret", "redis://host/0?db=1&ssl_password=***"),
        ("me:secret@host", "me:***@host"),
        ("redis://host:1/0", "redis://host:1/0"),
        ("file:///home/me@work/a:b", "file:///home/me@work/a:b"),
        ("file:///home/me:you@work", "file:///home/me:you@work"),
        ("file://me:secret@host/folder", "file://me:***@host/folder"),
        ("unix:///run/valkey@1.sock", "unix:///run/valkey@1.sock"),
        ("memory://", "memory://"),
        ("", ""),
    ],
)
def test_what_a_url_looks_like_without_its_password(url: str, told: str) -> None:
    assert masked(url) == told


@pytest.mark.parametrize("password", ODD)
def test_a_quoted_password_of_odd_characters_is_used_as_it_is(password: str) -> None:
    assert settings_of(urlsplit(f"redis://me:{quote(password, safe='')}@127.0.0.1:1/0")).password == password


def test_things_are_named_by_their_kind() -> None:
    assert described(redis.Redis()) == "<redis.client.Redis>"
    assert described({"a": 1}) == "<dict>"
    assert described(None) == "None"
    assert described(3) == "3"
