"""The options of an etcd:// URL."""

import ssl
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from interlock.core.errors import InvalidArgument, StoreError
from interlock.core.options import Options, Reader, number_in, read_options, seconds_in, text_in
from interlock.core.redaction import place_of, reads_url
from interlock.drivers.urls import port_of

PORT = 2379
IO_TIMEOUT = 5.0  # seconds to wait for a reply
MAX_CONNECTIONS = 32  # connections of a process for its requests, besides one for the watch
_KNOWN: dict[str, Reader] = {"timeout": seconds_in, "max_connections": partial(number_in, most=1000)}
_TLS: dict[str, Reader] = dict.fromkeys(("ssl_ca", "ssl_cert", "ssl_key"), text_in)


class EtcdOptions(NamedTuple):
    """The parameters of the connections.

    Attributes:
        members: the URLs of the members.
        prefix: the prefix of all keys.
        tls: the TLS context for httpx; False for none.
        login: user name and password, like in the request to log in; empty without a login.
        io_timeout: seconds to wait for a reply.
        most: the maximum number of connections for requests.
    """

    members: tuple[str, ...]
    prefix: str
    tls: Any
    login: dict[str, str]
    io_timeout: float
    most: int


@reads_url
def options_of(url: SplitResult) -> EtcdOptions:
    """Read a URL.

    Args:
        url: etcd://user:password@host:port,host2:port/prefix?options, or etcds://…

    Raises:
        InvalidArgument: the URL has an unknown option, or a part is missing or not allowed.
        StoreError: a certificate can't be read.
    """
    where = place_of(url)
    tls = url.scheme == "etcds"
    given = read_options(
        parse_qsl(url.query, keep_blank_values=True), _KNOWN | (_TLS if tls else {}), f"{url.scheme}://"
    )
    login, _, hosts = url.netloc.rpartition("@")
    user, _, password = login.partition(":")
    prefix = unquote(url.path).strip("/")
    if not hosts or "\0" in prefix:
        raise InvalidArgument(f"{where}: write {url.scheme}://user:password@host:{PORT},host2:{PORT}/prefix.")
    if password and not user:
        raise InvalidArgument(
            f"{where}: a password needs a user. For a client certificate use ssl_cert= and ssl_key=."
        )
    return EtcdOptions(
        tuple(_member(urlsplit(f"//{host}"), tls, where) for host in hosts.split(",")),
        prefix or "interlock",
        _context(given, where) if tls else False,
        {"name": unquote(user), "password": unquote(password)} if user else {},
        given.get("timeout", IO_TIMEOUT),
        given.get("max_connections", MAX_CONNECTIONS),
    )


def _member(host: SplitResult, tls: bool, where: str) -> str:
    if not host.hostname:
        raise InvalidArgument(f"{where}: a host has no name. Name each host.")
    name = f"[{host.hostname}]" if ":" in host.hostname else host.hostname
    return f"{'https' if tls else 'http'}://{name}:{port_of(host) or PORT}"


def _context(given: Options, where: str) -> ssl.SSLContext:
    """Return the TLS context; without ssl_ca= it trusts the certificate authorities of the system."""
    if ("ssl_cert" in given) != ("ssl_key" in given):
        raise InvalidArgument(f"{where}: a client certificate needs both ssl_cert= and ssl_key=.")
    try:
        context = ssl.create_default_context(cafile=given.get("ssl_ca"))
        if "ssl_cert" in given:
            context.load_cert_chain(given["ssl_cert"], given["ssl_key"])
    except OSError as error:
        raise StoreError(f"{where}: a certificate or key cannot be read: {error}") from error
    return context
