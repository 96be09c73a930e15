"""The settings of a connection to a server, a Sentinel service, or a cluster.

They are read once, from a URL and its options: redis://host?socket_timeout=0.5&max_connections=10.
"""

import encodings.idna  # noqa: F401 - the first host name would import it, which hangs in a child forked meanwhile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, TypeAlias
from urllib.parse import SplitResult, parse_qsl, unquote

from interlock.core.claims import shown_value
from interlock.core.errors import InvalidArgument
from interlock.core.options import Options, Reader, flag_in, number_in, read_options, seconds_in, text_in
from interlock.core.redaction import place_of, reads_url
from interlock.drivers.urls import port_of
from interlock.storekit._sync.pool import MAX_CONNECTIONS

IO_TIMEOUT = 2.0  # default seconds to wait for a reply
PORT, SENTINEL_PORT = 6379, 26379
Address: TypeAlias = tuple[str, int]
Credentials: TypeAlias = Callable[[], tuple[str, ...]]
"""A function that returns a password, or a user and a password."""

CHOICES: Mapping[str, tuple[str, ...]] = {
    "ssl_cert_reqs": ("required", "optional", "none"),
    "ssl_min_version": ("TLSv1_2", "TLSv1_3"),
}


def _choice(name: str, text: str) -> str:
    if text not in CHOICES[name]:
        raise InvalidArgument(f"{name} must be one of {', '.join(CHOICES[name])}, not {shown_value(text)}.")
    return text


def _truth(name: str, text: str) -> bool:
    """Read a flag like redis-py: every value except a form of "no" means yes."""
    return text.upper() not in ("0", "F", "FALSE", "N", "NO")


COMMON_OPTIONS: dict[str, Reader] = {
    **dict.fromkeys(("username", "password", "client_name"), text_in),
    **dict.fromkeys(("socket_timeout", "socket_connect_timeout"), seconds_in),
    "max_connections": number_in,
}
"""Options of every kind of URL."""
WITHOUT_EFFECT: dict[str, Reader] = dict.fromkeys((
    "protocol", "decode_responses", "encoding", "encoding_errors", "health_check_interval", "retry_on_timeout",
    "socket_read_size", "legacy_responses", "lib_name", "lib_version", "socket_keepalive",
), text_in)  # fmt: skip
"""Options of redis-py that are accepted and ignored, so that one URL serves both."""
NUMBERED: dict[str, Reader] = dict.fromkeys(("db", "replicas"), partial(number_in, least=0))
"""Options of one server, or of a primary that Sentinel names."""
TLS: dict[str, Reader] = {
    **dict.fromkeys((
        "ssl_keyfile", "ssl_certfile", "ssl_password", "ssl_ca_certs", "ssl_ca_data", "ssl_ca_path", "ssl_ciphers",
    ), text_in),
    **dict.fromkeys(CHOICES, _choice),
    "ssl_check_hostname": _truth,
}  # fmt: skip
SENTINEL_OPTIONS: dict[str, Reader] = {
    "sentinel_username": text_in, "sentinel_password": text_in, "sentinel_ssl": flag_in,
}  # fmt: skip


@dataclass(frozen=True, repr=False)
class Tls:
    """TLS with the options of redis-py.

    Attributes:
        options: the options by name, which begin with ssl_.
    """

    options: Mapping[str, Any]

    @cached_property
    def context(self) -> object:
        """The TLS context, with the files as they were at the first connection.

        Raises:
            OSError, ValueError: a file cannot be read, or an option is not allowed.
        """
        import ssl

        context = ssl.create_default_context()
        wanted = self.options.get("ssl_cert_reqs", "required") or "none"
        unverified = wanted in ("none", ssl.CERT_NONE)
        context.check_hostname = not unverified and bool(self.options.get("ssl_check_hostname", True))
        if unverified or wanted in ("optional", ssl.CERT_OPTIONAL):
            context.verify_mode = ssl.CERT_NONE if unverified else ssl.CERT_OPTIONAL
        if certificate := self.options.get("ssl_certfile") or self.options.get("ssl_keyfile"):
            context.load_cert_chain(certificate, self.options.get("ssl_keyfile"), self.options.get("ssl_password"))
        authorities = [self.options.get(name) for name in ("ssl_ca_certs", "ssl_ca_path", "ssl_ca_data")]
        if any(authorities):
            context.load_verify_locations(*authorities)
        least = self.options.get("ssl_min_version")
        if least:
            context.minimum_version = ssl.TLSVersion[least] if isinstance(least, str) else least
        if self.options.get("ssl_ciphers"):
            context.set_ciphers(self.options["ssl_ciphers"])
        return context


@dataclass(frozen=True, repr=False)
class Settings:
    """The parameters of a connection.

    Attributes:
        kind: a single server, the primary of a Sentinel service, or a cluster.
        address: host and port of a single server, or the path of a UNIX socket.
        nodes: the addresses of the Sentinels, or of nodes of the cluster.
        service: the Sentinels' name of the primary.
        sentinel: the settings for a Sentinel, without its address.
        username, password, db, client_name: for the login.
        credentials: called for user and password at each login, instead of `username` and `password`.
        tls: None without TLS.
        io_timeout, connect_timeout: seconds.
        most: the maximum number of connections to one server.
        replicas: the number of replicas that must confirm a grant.
        make: makes a connection of the program's own class to an address; None for ours.
        remap: maps an address announced by a cluster to a reachable one.
    """

    kind: Literal["server", "sentinel", "cluster"] = "server"
    address: Address | str = ("localhost", PORT)
    nodes: tuple[Address, ...] = ()
    service: str = ""
    sentinel: "Settings | None" = None
    username: str | None = None
    password: str | None = None
    credentials: Credentials | None = None
    db: int = 0
    client_name: str | None = None
    tls: Tls | None = None
    io_timeout: float = IO_TIMEOUT
    connect_timeout: float = IO_TIMEOUT
    most: int = MAX_CONNECTIONS
    replicas: int = 0
    make: Callable[[Address | str], object] | None = None
    remap: Callable[[Address], Address] | None = None

    def __repr__(self) -> str:
        return f"<Settings of {self.where}>"  # they have passwords

    @property
    def where(self) -> str:
        """The server, for messages."""
        if self.kind == "sentinel":
            return f"the Redis service {self.service!r} of Sentinel"
        if self.kind == "cluster":
            return "the Redis cluster"
        if isinstance(self.address, str):
            return f"the Redis server at {self.address}"
        return f"the Redis server at {self.address[0]}:{self.address[1]}"

    def at(self, address: Address) -> "Settings":
        """Return the settings for a single server of the group."""
        return replace(self, kind="server", address=address)


@reads_url
def settings_of(url: SplitResult) -> Settings:
    """Return the settings of a URL.

    Args:
        url: redis://, rediss://, valkey://, valkeys://, unix://, redis+sentinel://, redis+cluster:// and similar.

    Raises:
        InvalidArgument: the URL cannot be parsed, or has an unknown option.
    """
    scheme, _, kind = url.scheme.partition("+")
    given = _options_of(url, kind)
    login, _, hosts = url.netloc.rpartition("@")
    user, colon, password = login.partition(":")
    if not colon and "password" not in given:  # redis://secret@host
        user, password = "", user
    limit = given.get("socket_timeout", IO_TIMEOUT)
    tls = Tls({name: given[name] for name in TLS if name in given})
    secure = scheme in ("rediss", "valkeys")
    if tls.options and not secure and kind != "sentinel":
        raise InvalidArgument("TLS options require a TLS URL (rediss:// or valkeys://).")
    common = Settings(
        username=given.get("username") or unquote(user) or None,
        password=given.get("password") or unquote(password) or None,
        db=given.get("db", 0),
        client_name=given.get("client_name"),
        tls=tls if secure else None,
        io_timeout=limit,
        connect_timeout=min(limit, given.get("socket_connect_timeout", limit)),
        most=given.get("max_connections", MAX_CONNECTIONS),
        replicas=given.get("replicas", 0),
    )
    if url.scheme == "unix":
        if hosts not in ("", "localhost"):
            meant = f"write three slashes before the socket's path. Did you mean unix:///{hosts}{url.path}?"
            raise InvalidArgument(f"{place_of(url)!r}: {meant}")
        return replace(common, address=unquote(url.path))
    path = url.path.strip("/").split("/")
    service = path.pop(0) if kind == "sentinel" else ""
    common = replace(common, db=given.get("db", number_in("the database", "/".join(path) or "0", least=0)))
    if kind == "cluster":
        return replace(common, kind="cluster", nodes=_nodes_of(url, hosts, PORT))
    if kind != "sentinel":
        return replace(common, address=(unquote(url.hostname or "localhost"), port_of(url) or PORT))
    if not service or "@" in service:
        raise InvalidArgument(
            "A Sentinel URL must name the service: redis+sentinel://host:26379,host2:26379/mymaster[/db]."
        )
    sentinel = Settings(
        username=given.get("sentinel_username"),
        password=given.get("sentinel_password"),
        tls=tls if given.get("sentinel_ssl", secure) else None,
        io_timeout=limit,
        connect_timeout=common.connect_timeout,
    )
    nodes = _nodes_of(url, hosts, SENTINEL_PORT)
    return replace(common, kind="sentinel", nodes=nodes, service=service, sentinel=sentinel)


def _options_of(url: SplitResult, kind: str) -> Options:
    known = COMMON_OPTIONS | TLS | WITHOUT_EFFECT
    if kind != "cluster":
        known |= NUMBERED
    if kind == "sentinel":
        known |= SENTINEL_OPTIONS
    return read_options(parse_qsl(url.query, keep_blank_values=True), known, f"{url.scheme}://")


def _nodes_of(url: SplitResult, hosts: str, port: int) -> tuple[Address, ...]:
    """Return the addresses in host,host:port,[::1]:port."""
    found = [SplitResult("", host, "", "", "") for host in hosts.split(",")]
    if not all(each.hostname for each in found):
        raise InvalidArgument(f"{place_of(url)}: give one or more hosts, such as host:{port},host2:{port}.")
    return tuple((each.hostname or "", port_of(each) or port) for each in found)
