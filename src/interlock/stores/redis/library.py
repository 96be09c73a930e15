"""Connections of the program's own class, and the socket options of all connections.

Such a class logs in with tokens of a cloud, uses a tunnel, or has the server in memory.  It connects and logs in;
after that, requests and replies are exchanged as bytes, as over a socket.
"""

import math
import socket
from collections.abc import Callable, Mapping
from typing import Any

from interlock.drivers.redis_py import given_code, names_of
from interlock.stores.redis.settings import Address

OWN_ARGUMENTS = {"protocol": 2, "decode_responses": False, "health_check_interval": 0, "client_name": None}
"""Arguments of each connection for locks, which replace the client's own."""
OF_RESP3 = (
    "maint_notifications_config", "maint_notifications_pool_handler", "oss_cluster_maint_notifications_handler",
    "orig_host_address", "orig_socket_timeout", "orig_socket_connect_timeout",
)  # fmt: skip
"""Arguments for maintenance notifications, which a pool of redis-py 8 adds only with protocol 3."""
PROBES = 3  # unanswered keepalive probes before TCP ends a connection
MOST_SECONDS = 32767  # the largest value that TCP accepts


def maker(
    kind: Callable[..., object], given: Mapping[str, object], limit: float | None
) -> Callable[[Address | str], object]:
    """Return a function that makes a connection to an address.

    Args:
        kind: the connection class.
        given: the program's arguments for it.
        limit: seconds to wait for a reply; None if the caller limits that (tasks).
    """
    arguments = {name: given[name] for name in given.keys() - OF_RESP3} | OWN_ARGUMENTS | {"socket_timeout": limit}

    def make(address: Address | str) -> object:
        place = {} if isinstance(address, str) else dict(zip(("host", "port"), address, strict=True))
        return kind(**{**arguments, **{name: place[name] for name in place if name in arguments}})

    return make


def as_bytes(reply: Any) -> bytes:
    """Encode a parsed reply again, as the server sent it."""
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, (list, tuple)):
        return b"*%d\r\n%b" % (len(reply), b"".join([as_bytes(each) for each in reply]))
    if isinstance(reply, BaseException):
        text, code = str(reply), given_code(reply)
        text = text if text.startswith(code) else f"{code} {text}"  # the library has removed the code
        return b"-%b\r\n" % " ".join(text.split()).encode()
    data = reply.encode() if isinstance(reply, str) else reply
    return b"$%d\r\n%b\r\n" % (len(data), data)


def answered(error: Exception) -> bytes:
    """Return the server's error reply, if the library has raised one.

    Raises:
        OSError: see `as_of_socket`.
    """
    if "ResponseError" in names_of(error):
        return as_bytes(error)
    raise as_of_socket(error)


def as_of_socket(error: Exception) -> Exception:
    """Return the socket error that corresponds to an error of the library."""
    if "TimeoutError" in names_of(error):
        return TimeoutError(str(error))
    return error if isinstance(error, OSError) else ConnectionResetError(str(error))


def keep_alive(sock: Any, seconds: float) -> None:
    """Enable TCP keepalive and a user time-out, and disable Nagle's algorithm.

    Source: tcp(7) for TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT and TCP_USER_TIMEOUT.

    Args:
        sock: a socket; without TCP nothing is done.
        seconds: how long callers wait for a reply.
    """
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    whole = min(MOST_SECONDS, max(1, math.ceil(seconds)))
    wanted = [(socket.SOL_SOCKET, "SO_KEEPALIVE", 1), (socket.IPPROTO_TCP, "TCP_NODELAY", 1)]
    wanted += [(socket.IPPROTO_TCP, name, whole) for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL")]
    wanted += [
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", PROBES),
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", whole * 1000),
    ]
    for level, name, value in wanted:
        option = getattr(socket, name, None)  # some systems lack some of them
        if option is not None:
            sock.setsockopt(level, option, value)
