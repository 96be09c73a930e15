"""Socket options by which the kernel notices a connection that was cut without a message."""

import math
import socket
from typing import Any

PROBES = 3
MOST_SECONDS = 32767


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
