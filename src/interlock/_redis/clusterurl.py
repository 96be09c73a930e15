"""Clients of a cluster from a URL, which may name several nodes: redis+cluster://[user:password@]host:port[,host:port]."""

from importlib import import_module
from typing import Any
from urllib.parse import SplitResult, urlunsplit

from interlock._redis.slots import Address
from interlock.core.errors import InvalidArgument

PORT = 6379


def hosts_of(url: SplitResult) -> list[Address]:
    """Return the hosts that a URL names.

    Raises:
        InvalidArgument: one of them is none.
    """
    hosts = []
    for each in url.netloc.rpartition("@")[2].split(","):
        try:
            one = SplitResult("", each, "", "", "")
            hosts.append((one.hostname or "", PORT if one.port is None else one.port))
        except ValueError:
            hosts.append(("", 0))
    bad = any(not host for host, _ in hosts)
    if bad:
        raise InvalidArgument(
            "a cluster's URL names one node or several: redis+cluster://[user:password@]host:6379,host2:6379"
        )
    return hosts


def client_of_cluster(url: SplitResult, scheme: str, library: str, tasks: bool, options: dict[str, Any]) -> Any:
    """Return a client of the cluster that the nodes in a URL belong to; one of them that is down is no error.

    Args:
        url: its host may be several, with commas between them.
        scheme: as the library calls it.
        library: "redis" or "valkey".
        tasks: True for asyncio.
        options: for the client, unless the URL says otherwise.

    Raises:
        InvalidArgument: the hosts make no sense.
        Exception: what the library raises.
    """
    module = import_module(f"{library}.asyncio.cluster" if tasks else f"{library}.cluster")
    make = getattr(module, f"{library.capitalize()}Cluster")
    hosts = hosts_of(url)
    login, at, every = url.netloc.rpartition("@")
    alone = urlunsplit(url._replace(scheme=scheme, netloc=login + at + every.split(",")[0]))
    if len(hosts) == 1:
        return make.from_url(alone, **options)
    connection = import_module(f"{library}.asyncio.connection" if tasks else f"{library}.connection")
    settings = options | connection.parse_url(alone)
    if settings.pop("connection_class", None) is connection.SSLConnection:
        settings["ssl"] = True
    for place in ("host", "port", "db"):
        settings.pop(place, None)
    return make(startup_nodes=[module.ClusterNode(host, port) for host, port in hosts], **settings)
