"""Clients from URLs, as the client libraries read them: of one server, of one that Sentinel knows, of a cluster."""

from importlib import import_module
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlencode, urlunsplit

from interlock._redis.clients import GIVEN, IO_TIMEOUT, factory_of
from interlock._redis.clusterurl import client_of_cluster
from interlock._redis.message import unreachable
from interlock._redis.options import SECONDS, SENTINEL, TLS, is_secure, options_of
from interlock.core.errors import InvalidArgument, LockError, StoreError
from interlock.core.redaction import masked, why


def library_for(scheme: str) -> str:
    """Return the name of the installed library that serves a scheme.

    Raises:
        StoreError: none is installed.
    """
    wanted = ("valkey", "redis") if scheme.startswith("valkey") else ("redis", "valkey")
    for name in wanted:
        try:
            import_module(name)
        except ImportError:
            continue
        return name
    raise StoreError(f"{scheme}:// needs a client library: pip install 'interlock[redis]'")


def client_of(url: SplitResult, tasks: bool) -> Any:
    """Return a client for a URL, as the library itself reads it.

    Args:
        url: redis://, rediss://, valkey://, valkeys://, unix://, redis+sentinel:// or redis+cluster:// and so on.
        tasks: True for asyncio.

    Raises:
        InvalidArgument: the URL makes no sense to the library, or has an option that is not known.
    """
    library = library_for(url.scheme)
    _check_quoting(url)
    _check_socket(url)
    options = options_of(url)
    client = _client_of(url, library, tasks)
    if "max_connections" in options:
        setattr(client, GIVEN, int(options["max_connections"]))
    return client


def _client_of(url: SplitResult, library: str, tasks: bool) -> Any:
    root = import_module(f"{library}.asyncio" if tasks else library)
    base, _, kind = url.scheme.partition("+")
    plain = urlunsplit(url._replace(scheme=_scheme(base, library)))
    if "://" not in plain:
        plain = plain.replace(":", "://", 1)  # a path without a host
    try:
        if kind == "sentinel":
            return _of_sentinel(url, library, tasks)
        if kind == "cluster":
            return client_of_cluster(url, _scheme(base, library), library, tasks, _timeout(url))
        client = getattr(root, library.capitalize()).from_url(plain, **_timeout(url))
        factory_of(client, tasks).new_connection()  # not connected: it only judges the settings
        return client
    except LockError:
        raise
    except Exception as error:
        if kind != "cluster" or isinstance(error, (ValueError, TypeError)):
            reason = why(error, plain)
        else:  # a client of a cluster connects at once
            raise unreachable(f"the Redis cluster at {url.netloc.rpartition('@')[2]}", error) from error
    # Not while the error is handled: its own text may show the password.
    raise InvalidArgument(f"{masked(plain)!r} is no URL of a Redis server: {reason}")


def _check_quoting(url: SplitResult) -> None:
    """Refuse a password with / ? # or @ in it, unquoted: its first part would be taken for a port and shown."""
    query = url.query.partition("@")
    if url.netloc and ("@" in url.path + url.fragment or (query[1] and "=" not in query[0])):
        given = url.geturl()
        raise InvalidArgument(f"{masked(given)!r} is no URL of a Redis server: {why(ValueError(), given)}")


def _check_socket(url: SplitResult) -> None:
    """Refuse unix://folder/socket: the library would take the folder for a host and leave it out."""
    host = url.netloc.rpartition("@")[2]
    if url.scheme == "unix" and host not in ("", "localhost"):
        shown = masked(url.geturl())
        meant = "" if "***" in shown else f"; did you mean unix:///{host}{url.path}?"
        raise InvalidArgument(f"{shown!r}: write three slashes and the path of the socket{meant}")


def _timeout(url: SplitResult) -> dict[str, float]:
    return {} if "socket_timeout" in url.query else {"socket_timeout": IO_TIMEOUT}


def _scheme(base: str, library: str) -> str:
    secure = base in ("rediss", "valkeys")
    if base == "unix":
        return base
    if library == "redis":
        return "rediss" if secure else "redis"
    return "valkeys" if secure else "valkey"


def _of_sentinel(url: SplitResult, library: str, tasks: bool) -> Any:
    """Return a client that asks Sentinel: redis+sentinel://[user:password@]host[:port][,host…]/service[/db]?options."""
    where = ".asyncio" if tasks else ""
    module = import_module(f"{library}{where}.sentinel")
    service, _, db = url.path.strip("/").partition("/")
    if not service:
        raise InvalidArgument(
            "a Sentinel URL names the service: redis+sentinel://host:26379,host2:26379/mymaster[/db]"
        )
    login, _, hosts = url.netloc.rpartition("@")
    options = options_of(url)
    secure = is_secure(url.scheme)
    settings = _settings_of(url, f"{login}@" if login else "", library, where)
    if db:
        settings.setdefault("db", int(db))
    io_timeout = {name: settings[name] for name in SECONDS if name in settings}
    of_tls = {name: settings.pop(name) for name in TLS if name in settings}
    asking: dict[str, Any] = dict(io_timeout)
    for name in ("username", "password"):
        if f"sentinel_{name}" in options:
            asking[name] = options[f"sentinel_{name}"]
    if options.get("sentinel_ssl", "true" if secure else "false") == "true":
        asking |= {"ssl": True, **of_tls}
    if secure:
        settings |= {"ssl": True, **of_tls}
    sentinel = module.Sentinel([_address(host) for host in hosts.split(",")], sentinel_kwargs=asking)
    client = sentinel.master_for(service, **settings)
    factory_of(client, tasks).new_connection()  # not connected: it only judges the settings
    return client


def _settings_of(url: SplitResult, login: str, library: str, where: str) -> dict[str, Any]:
    """Return login and options of a Sentinel URL as the library reads those of a plain one."""
    options = [pair for pair in parse_qsl(url.query) if pair[0] not in SENTINEL]
    plain = SplitResult(_scheme("redis", library), f"{login}server", "", urlencode(options), "")
    settings: dict[str, Any] = import_module(f"{library}{where}.connection").parse_url(urlunsplit(plain))
    settings.pop("host", None)
    return _timeout(url) | settings


def _address(text: str) -> tuple[str, int]:
    """Return host and port of a Sentinel: host, host:port, [::1]:port."""
    parts = SplitResult("", text, "", "", "")
    return parts.hostname or "localhost", parts.port or 26379
