"""The settings of a connection to a server, to the primary of a Sentinel service, or to a cluster.

They are read once, from a URL and its options: redis://host?socket_timeout=0.5&max_connections=10.
"""

import encodings.idna  # noqa: F401 - the first host name would import it, which hangs in a child forked meanwhile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias
from urllib.parse import SplitResult, parse_qsl, unquote

from interlock.core.errors import InvalidArgument
from interlock.core.options import flag_in, number_in, seconds_in
from interlock.core.redaction import UNQUOTED, is_torn, masked, read, whole, why
from interlock.remote._sync.pool import MOST

IO_TIMEOUT = 2.0  # seconds to wait for a reply, unless the user says otherwise
PORT, SENTINEL_PORT = 6379, 26379
Address: TypeAlias = tuple[str, int]
Credentials: TypeAlias = Callable[[], tuple[str, ...]]
"""Returns a password, or a user and a password."""

EVERYWHERE = frozenset((
    "username", "password", "client_name", "socket_timeout", "socket_connect_timeout", "max_connections",
))  # fmt: skip
"""Options of every kind of URL."""
TLS = frozenset((
    "ssl_keyfile", "ssl_certfile", "ssl_password", "ssl_cert_reqs", "ssl_ca_certs", "ssl_ca_data", "ssl_ca_path",
    "ssl_check_hostname", "ssl_min_version", "ssl_ciphers",
))  # fmt: skip
SENTINEL = frozenset(("sentinel_username", "sentinel_password", "sentinel_ssl"))
WITHOUT_EFFECT = frozenset((
    "protocol", "decode_responses", "encoding", "encoding_errors", "health_check_interval", "retry_on_timeout",
    "socket_read_size", "legacy_responses", "lib_name", "lib_version", "socket_keepalive",
))  # fmt: skip
"""Options of redis-py that are accepted and ignored, so that a program can use one URL for both."""
SECONDS = ("socket_timeout", "socket_connect_timeout")
FLAGS = ("sentinel_ssl",)
CHOICES: Mapping[str, tuple[str, ...]] = {
    "ssl_cert_reqs": ("required", "optional", "none"),
    "ssl_check_hostname": ("true", "false", "True", "False", "yes", "no", "1", "0"),
    "ssl_min_version": ("TLSv1_2", "TLSv1_3", "771", "772"),
}


@dataclass(frozen=True, repr=False)
class Settings:
    """How to connect.

    Attributes:
        kind: a single server, the primary of a Sentinel service, or a cluster.
        address: host and port of a single server, or the path of a UNIX socket.
        nodes: the addresses of the Sentinels, or of nodes of the cluster.
        service: the Sentinels' name of the primary.
        sentinel: the settings for a Sentinel, without its address.
        username, password, db, client_name: for the login.
        credentials: called for user and password at each login, instead of `username` and `password`.
        tls: the options of TLS; None without TLS.
        io_timeout, connect_timeout: seconds.
        most: the most connections to one server.
        replicas: how many replicas must have a grant before it counts.
        make: makes a connection of the program's own class to an address; None for ours.
        remap: maps an address that a cluster announces to one that can be reached from here.
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
    tls: Mapping[str, Any] | None = None
    io_timeout: float = IO_TIMEOUT
    connect_timeout: float = IO_TIMEOUT
    most: int = MOST
    replicas: int = 0
    make: Callable[[Address | str], Any] | None = None
    remap: Callable[[Address], Address] | None = None
    _context: list[Any] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<Settings of {self.where}>"  # they have passwords

    @property
    def where(self) -> str:
        """The server, for messages."""
        if self.kind == "sentinel":
            return f"the Redis server that Sentinel calls {self.service!r}"
        if self.kind == "cluster":
            return "the Redis cluster"
        if isinstance(self.address, str):
            return f"the Redis server at {self.address}"
        return f"the Redis server at {self.address[0]}:{self.address[1]}"

    def at(self, address: Address) -> "Settings":
        """Return the settings for a single server of the group."""
        return replace(self, kind="server", address=address)

    def context(self) -> Any:
        """Return the TLS context; None without TLS.

        Raises:
            OSError, ValueError: a file can't be read, or an option is not allowed.
        """
        if self.tls is None:
            return None
        if not self._context:
            self._context.append(_context_of(self.tls))
        return self._context[0]


def _context_of(tls: Mapping[str, Any]) -> Any:
    import ssl

    context = ssl.create_default_context()
    if str(tls.get("ssl_check_hostname", True)) in ("False", "false", "no", "0"):
        context.check_hostname = False
    wanted = tls.get("ssl_cert_reqs", "required") or "none"
    if wanted in ("none", "optional", ssl.CERT_NONE, ssl.CERT_OPTIONAL):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE if wanted in ("none", ssl.CERT_NONE) else ssl.CERT_OPTIONAL
    if tls.get("ssl_certfile") or tls.get("ssl_keyfile"):
        certificate = tls.get("ssl_certfile") or tls["ssl_keyfile"]
        context.load_cert_chain(certificate, tls.get("ssl_keyfile"), tls.get("ssl_password"))
    if tls.get("ssl_ca_certs") or tls.get("ssl_ca_path") or tls.get("ssl_ca_data"):
        context.load_verify_locations(tls.get("ssl_ca_certs"), tls.get("ssl_ca_path"), tls.get("ssl_ca_data"))
    least = tls.get("ssl_min_version")
    if least is not None:
        text = str(least)
        context.minimum_version = ssl.TLSVersion[text] if text.startswith("TLSv") else ssl.TLSVersion(int(least))
    if tls.get("ssl_ciphers"):
        context.set_ciphers(tls["ssl_ciphers"])
    return context


def settings_of(url: SplitResult) -> Settings:
    """Return the settings of a URL.

    Args:
        url: redis://, rediss://, valkey://, valkeys://, unix://, redis+sentinel:// or redis+cluster:// and so on.

    Raises:
        InvalidArgument: the URL can't be read, or has an unknown option.
    """
    given = whole(url)
    _check_quoting(url, given)
    options = options_of(url)
    try:
        return _settings_of(url, options)
    except InvalidArgument:
        raise
    except ValueError as error:
        reason = why(error, given)
    # Outside of the except clause: the text of the chained error could show the password.
    raise InvalidArgument(f"{masked(given)!r} is no URL of a Redis server: {reason}")


def _check_quoting(url: SplitResult, given: str) -> None:
    """Refuse a password with an unquoted / ? # or @: a part of it would be taken for a port and shown in errors."""
    query = url.query.partition("@")
    if is_torn(url) and url.netloc and ("@" in url.path + url.fragment or (query[1] and "=" not in query[0])):
        raise InvalidArgument(f"{masked(given)!r} is no URL of a Redis server: it can't be read; {UNQUOTED}")


def _settings_of(url: SplitResult, options: dict[str, str]) -> Settings:
    kind = url.scheme.partition("+")[2]
    login, at, hosts = url.netloc.rpartition("@")
    user, colon, password = login.partition(":")
    limit = float(options.get("socket_timeout", IO_TIMEOUT))
    of_tls = {name: options[name] for name in TLS & options.keys()}
    _check_tls(of_tls)
    common = Settings(
        username=options.get("username") or unquote(user) or None,
        password=options.get("password") or unquote(password) or None,
        db=int(options.get("db", 0)),
        client_name=options.get("client_name"),
        tls=of_tls if is_secure(url.scheme) else None,
        io_timeout=limit,
        connect_timeout=min(limit, float(options.get("socket_connect_timeout", limit))),
        most=int(options.get("max_connections", MOST)),
        replicas=int(options.get("replicas", 0)),
    )
    if at and not colon and common.password is None:  # redis://secret@host
        common = replace(common, username=options.get("username"), password=unquote(user) or None)
    if kind == "sentinel":
        return _of_sentinel(url, hosts, options, common, of_tls)
    if kind == "cluster":
        return replace(common, kind="cluster", nodes=_nodes_of(hosts))
    if url.scheme == "unix":
        if hosts not in ("", "localhost"):
            shown = masked(whole(url))
            meant = "" if "***" in shown else f"; did you mean unix:///{hosts}{url.path}?"
            raise InvalidArgument(f"{shown!r}: write three slashes and the path of the socket{meant}")
        return replace(common, address=unquote(url.path))
    db = url.path.strip("/")
    return replace(
        common,
        address=(unquote(url.hostname or "localhost"), PORT if url.port is None else url.port),
        db=int(options.get("db") or db or 0),
    )


def _check_tls(of_tls: Mapping[str, str]) -> None:
    for name in ("ssl_keyfile", "ssl_certfile", "ssl_ca_certs", "ssl_ca_path"):
        if "\0" in of_tls.get(name, ""):
            raise ValueError(f"{name} is no path")


def _of_sentinel(
    url: SplitResult, hosts: str, options: dict[str, str], common: Settings, of_tls: dict[str, str]
) -> Settings:
    service, _, db = url.path.strip("/").partition("/")
    if not service:
        raise InvalidArgument(
            "a Sentinel URL names the service: redis+sentinel://host:26379,host2:26379/mymaster[/db]"
        )
    secure = options.get("sentinel_ssl", "true" if is_secure(url.scheme) else "false") == "true"
    sentinel = Settings(
        username=options.get("sentinel_username"),
        password=options.get("sentinel_password"),
        tls=of_tls if secure else None,
        io_timeout=common.io_timeout,
        connect_timeout=common.connect_timeout,
    )
    nodes = tuple(_address(host, SENTINEL_PORT) for host in hosts.split(","))
    db = options.get("db") or db or "0"
    return replace(common, kind="sentinel", nodes=nodes, service=service, sentinel=sentinel, db=int(db))


def _nodes_of(hosts: str) -> tuple[Address, ...]:
    try:
        nodes = tuple(_address(host, PORT) for host in hosts.split(","))
    except ValueError:
        nodes = (("", 0),)
    if any(not host for host, _ in nodes):
        raise InvalidArgument(
            "a cluster's URL names one node or several: redis+cluster://[user:password@]host:6379,host2:6379"
        )
    return nodes


def _address(text: str, port: int) -> Address:
    """Return host and port: host, host:port, [::1]:port."""
    one = SplitResult("", text, "", "", "")
    default = "" if port == PORT else "localhost"
    return one.hostname or default, port if one.port is None else one.port


def options_of(url: SplitResult) -> dict[str, str]:
    """Return the options of a URL.

    Raises:
        InvalidArgument: an option is unknown, given twice, or has a value that is not allowed.
    """
    return read(url, _options_of)


def _options_of(url: SplitResult) -> dict[str, str]:
    known = _known(url.scheme)
    found: dict[str, str] = {}
    for name, value in parse_qsl(url.query, keep_blank_values=True):
        if name not in known:
            raise InvalidArgument(_unknown(url, name, known))
        if name in found or not value:
            raise InvalidArgument(f"{masked(url.geturl())!r}: give {name} one value")
        found[name] = value
    for name in found.keys() & SECONDS:
        seconds_in(name, found[name])
    for name, least in (("max_connections", 1), ("db", 0), ("replicas", 0)):
        if name in found:
            number_in(name, found[name], least)
    for name in found.keys() & FLAGS:
        flag_in(name, found[name])
    for name in found.keys() & CHOICES.keys():
        if found[name] not in CHOICES[name]:
            raise InvalidArgument(f"{name} is one of {', '.join(CHOICES[name])}, not {found[name][:20]!r}")
    return found


def is_secure(scheme: str) -> bool:
    """Return True if a scheme uses TLS."""
    return scheme.partition("+")[0] in ("rediss", "valkeys")


def _known(scheme: str) -> frozenset[str]:
    kind = scheme.partition("+")[2]
    known = EVERYWHERE | WITHOUT_EFFECT
    if is_secure(scheme) or kind == "sentinel":
        known |= TLS
    if kind == "sentinel":
        known |= SENTINEL
    return known if kind == "cluster" else known | {"db", "replicas"}


def _unknown(url: SplitResult, name: str, known: frozenset[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, known, 1)
    if close:
        advice = f"did you mean {close[0]}? "
    elif name in TLS:
        advice = "TLS is asked for by rediss://, valkeys:// or the like; "
    elif name == "db":
        advice = "a cluster has one database; "
    elif name == "replicas":
        advice = "it is for one server, or one that Sentinel names; "
    else:
        advice = ""
    shown = ", ".join(sorted(known - WITHOUT_EFFECT))
    return f"{url.scheme}:// has no option {name!r}: {advice}there are {shown}"
