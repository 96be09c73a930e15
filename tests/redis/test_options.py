"""The options in a URL reach the connections, or are refused with an error that lists the known options."""

import ssl
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import interlock
from interlock.api.connect import split
from interlock.core.errors import InvalidArgument
from interlock.storekit._sync.pool import MAX_CONNECTIONS
from interlock.stores.redis.clients import settings_of_client
from interlock.stores.redis.settings import Tls, settings_of
from interlock.testing.store_fixture import TASKS, THREADS, ContractWorld
from tests.servers import RedisSentinel, RedisServer, need
from tests.servers.sentinel import MASTER, Sentinel
from tests.support.redis_helpers import SERVERS, is_of_use, key_of, place_of

Connect = Callable[..., Any]
SYNC_AND_ASYNC = pytest.mark.parametrize("sync_or_async", [THREADS, TASKS])


@pytest.fixture(params=[interlock.connect, interlock.aconnect])
def connect(request: pytest.FixtureRequest) -> Connect:
    """Both ways to connect."""
    found: Connect = request.param
    return found


# -- refused ---------------------------------------------------------------------------------------------

PLACES = [
    "redis://h", "rediss://h", "valkey://h/0", "valkeys://h", "unix:///run/redis.sock", "redis+sentinel://h/service",
    "rediss+sentinel://h/service/3", "valkey+sentinel://h/service", "redis+cluster://h", "rediss+cluster://h",
    "valkey+cluster://h", "valkeys+cluster://h",
]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_an_unknown_option_is_refused_with_those_that_are_known(connect: Connect, place: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        connect(f"{place}?socket_timout=1")
    assert all(word in str(caught.value) for word in ("'socket_timout'", "mean socket_timeout?", "max_connections"))


@pytest.mark.parametrize("place", [*PLACES, "memory://", "memory://space", "file:///tmp/interlock-nowhere"])
@pytest.mark.parametrize(("name", "value"), [("namespace", "app"), ("ttl", "5")])
def test_namespace_and_ttl_are_for_connect(connect: Connect, place: str, name: str, value: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"connect\(url, {name}="):
        connect(f"{place}?{name}={value}")


@pytest.mark.parametrize(
    "place", ["memory://?mode=0700", "memory://space?x", "memory://#x", "file:///tmp/x?colour=red"]
)
def test_stores_without_such_an_option_refuse_it(connect: Connect, place: str) -> None:
    with pytest.raises(InvalidArgument, match="option"):
        connect(place)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis://h?ssl_ca_certs=x", "rediss://"),
        ("redis+cluster://h?db=1", "no option 'db'"),
        ("redis://me:s3cret@h/first", "whole number"),
        ("redis+cluster://s3cret/x@h", "cannot be parsed"),
        ("redis://s3cret#x@h", "cannot be parsed"),
        ("redis://h?sentinel_password=s3cret", "no option 'sentinel_password'"),
        ("redis://h?db=1&db=2", "db exactly one value"),
        ("redis://h?socket_timeout=", "socket_timeout exactly one value"),
        ("redis://h?socket_timeout=0", "above 0"),
        ("redis://h?socket_timeout=nan", "above 0"),
        ("redis://h?socket_connect_timeout=soon", "above 0"),
        ("redis://h?max_connections=0", "whole number from 1 to 1000000"),
        ("redis://h?max_connections=many", "whole number from 1 to 1000000"),
        ("redis+sentinel://h/service?db=-1", "whole number from 0 to 1000000, not '-1'"),
        ("redis+sentinel://h/service?sentinel_ssl=perhaps", "true or false"),
        ("redis+sentinel://:s3cret@h/service?socket_timout=1&sentinel_password=s3cret", "socket_timeout"),
    ],
)
def test_options_that_make_no_sense_are_refused(connect: Connect, url: str, told: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        connect(url)
    assert told in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("place", ["redis://h", "valkey://h", "redis+sentinel://h/service"])
def test_the_options_of_the_libraries_are_taken(connect: Connect, place: str) -> None:
    options = "protocol=3&decode_responses=true&health_check_interval=5&retry_on_timeout=1&client_name=app"
    connect(f"{place}?{options}&socket_timeout=0.5&socket_connect_timeout=0.2&socket_keepalive=yes&db=1")


# -- reach the connections ---------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["redis+sentinel", "rediss+sentinel", "valkey+sentinel", "valkeys+sentinel"])
def test_a_sentinel_url_is_understood_whole(scheme: str) -> None:
    url = (
        f"{scheme}://me:pa%2Fss@h1,[::1]:7,h3:8/service/3?socket_timeout=0.5&max_connections=7&ssl_cert_reqs=none"
        "&sentinel_username=eye&sentinel_password=s%26t"
    )
    found = settings_of(split(url))
    assert (found.username, found.password, found.db, found.service) == ("me", "pa/ss", 3, "service")
    assert (found.io_timeout, found.most) == (0.5, 7)
    assert found.nodes == (("h1", 26379), ("::1", 7), ("h3", 8))
    assert (found.sentinel.username, found.sentinel.password) == ("eye", "s&t")
    wanted = Tls({"ssl_cert_reqs": "none"}) if scheme in ("rediss+sentinel", "valkeys+sentinel") else None
    assert found.tls == found.sentinel.tls == wanted


@pytest.mark.parametrize(
    ("scheme", "option", "secure"), [("redis", "true", (False, True)), ("rediss", "false", (True, False))]
)
def test_tls_to_the_sentinels_is_a_choice_of_its_own(scheme: str, option: str, secure: tuple[bool, bool]) -> None:
    found = settings_of(urlsplit(f"{scheme}+sentinel://h/service?sentinel_ssl={option}"))
    assert (found.tls is not None, found.sentinel.tls is not None) == secure


def test_what_a_client_says_about_its_server_is_read() -> None:
    import redis
    import redis.asyncio
    import valkey

    for module, tasks in ((redis, False), (valkey, False), (redis.asyncio, True)):
        make: Any = getattr(module, "Redis", None) or module.Valkey
        found = settings_of_client(
            make(host="h", port=7, db=3, username="me", password="s", max_connections=9), tasks
        )
        assert (found.address, found.db, found.username, found.password) == (("h", 7), 3, "me", "s")
        assert found.most == 9
        assert settings_of_client(make(unix_socket_path="/run/x"), tasks).address == "/run/x"
        secure = settings_of_client(make(ssl=True, ssl_ca_certs="/ca"), tasks)
        assert secure.tls.options["ssl_ca_certs"] == "/ca"
        assert settings_of_client(make(), tasks).most == MAX_CONNECTIONS


@pytest.fixture(params=SERVERS)
def watched(request: pytest.FixtureRequest) -> Iterator[RedisSentinel]:
    """A master with a replica and three Sentinels, the first of which requires a password."""
    need(request.param)
    with RedisSentinel(request.param) as group:
        group.sentinels[0].command("ACL", "SETUSER", "eye", "on", ">s&t", "+@all", "allchannels")
        yield group


def keys_in(server: RedisServer, db: int) -> Any:
    with server.wire() as wire:
        wire.ask("SELECT", db)
        return wire.ask("KEYS", "interlock:*")


def test_the_options_of_a_sentinel_url_reach_the_servers(watched: RedisSentinel) -> None:
    first, *_ = watched.sentinels
    master = watched.master
    eye = "sentinel_username=eye&sentinel_password=s%26t&socket_timeout=5"
    first.command("ACL", "SETUSER", "default", "off")
    for sync_or_async, path, query, db in ((THREADS, f"{MASTER}/3", eye, 3), (TASKS, MASTER, f"db=2&{eye}", 2)):
        with closing(
            ContractWorld(place_of(f"redis+sentinel://{first.host}:{first.port}/{path}?{query}"), sync_or_async)
        ) as world:
            ann = world.actor()
            grant = ann.do(world.connect().lock(world.name).acquire, timeout=10)
            assert key_of(world.name) in keys_in(master, db)
            assert keys_in(master, 0) == []
            assert ann.do(grant.release) is True


@pytest.mark.parametrize("text", ["False", "True", "0", "1", "no", "yes", "false", "true", "FALSE", "N", "f", "on"])
def test_a_check_of_host_names_is_read_as_by_redis_py(text: str) -> None:
    from redis.connection import parse_url

    for url in (f"rediss://h?ssl_check_hostname={text}", f"rediss+sentinel://h/service?ssl_check_hostname={text}"):
        tls = settings_of(urlsplit(url)).tls
        assert tls is not None
        theirs = parse_url(f"rediss://h?ssl_check_hostname={text}")["ssl_check_hostname"]
        assert tls.context.check_hostname is theirs
        assert tls.context.verify_mode == ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("options", "checks", "mode"),
    [
        ("ssl_cert_reqs=none", False, ssl.CERT_NONE),
        ("ssl_cert_reqs=none&ssl_check_hostname=true", False, ssl.CERT_NONE),
        ("ssl_cert_reqs=optional", True, ssl.CERT_OPTIONAL),
        ("ssl_cert_reqs=optional&ssl_check_hostname=no", False, ssl.CERT_OPTIONAL),
        ("", True, ssl.CERT_REQUIRED),
    ],
)
def test_host_names_are_checked_with_the_certificate(options: str, checks: bool, mode: ssl.VerifyMode) -> None:
    tls = settings_of(urlsplit(f"rediss://h?{options}")).tls
    assert tls is not None
    assert (tls.context.check_hostname, tls.context.verify_mode) == (checks, mode)


# -- TLS -----------------------------------------------------------------------------------------------------


@SYNC_AND_ASYNC
@pytest.mark.parametrize("of_sentinel", [True, False])
def test_sentinel_over_tls(sync_or_async: str, of_sentinel: bool, tmp_path: Path) -> None:
    need("redis")
    need("tls")
    with RedisServer("redis", tls=True, config={"tls-replication": "yes"}) as master:
        config = {
            f"sentinel monitor {MASTER}": f"{master.host} {master.port} 1",
            "tls-replication": "yes",
            "tls-ca-cert-file": str(master.tls.authority),
        }
        if not of_sentinel:  # it needs files of its own to speak TLS to the master
            config |= {"tls-cert-file": str(master.tls.certificate), "tls-key-file": str(master.tls.key)}
        with Sentinel("redis", tls=of_sentinel, config=config) as sentinel:
            authorities = tmp_path / "authorities.pem"
            known = [each.authority for each in (master.tls, sentinel.tls) if each is not None]
            authorities.write_text("".join(each.read_text() for each in known))
            options = f"ssl_ca_certs={authorities}" + ("" if of_sentinel else "&sentinel_ssl=false")
            place = place_of(f"rediss+sentinel://{sentinel.host}:{sentinel.port}/{MASTER}?{options}")
            with closing(ContractWorld(place, sync_or_async)) as world:
                is_of_use(world, world.connect())
