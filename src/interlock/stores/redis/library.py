"""Connections of the program's own class, which redis-py or valkey-py made: their replies as bytes again.

Such a class signs in with tokens of a cloud, goes through a tunnel, or has the server in memory.  It connects and
signs in; what is sent over it, and what comes back, is as over a socket of ours.
"""

from collections.abc import Callable, Mapping
from typing import Any

from interlock.remote.redispy import given_code, names_of
from interlock.stores.redis.settings import Address

OURS = {"protocol": 2, "decode_responses": False, "health_check_interval": 0, "client_name": None}
"""What a connection for locks is made with, whatever the client of the program has."""


def maker(kind: Callable[..., Any], given: Mapping[str, Any], limit: float | None) -> Callable[[Address | str], Any]:
    """Return what makes connections to an address.

    Args:
        kind: the class.
        given: with which arguments the program makes one.
        limit: seconds to wait for an answer; None where somebody else limits that.
    """
    arguments = {**given, **OURS, "socket_timeout": limit}

    def make(address: Address | str) -> Any:
        place = {} if isinstance(address, str) else dict(zip(("host", "port"), address, strict=True))
        return kind(**{**arguments, **{name: place[name] for name in place if name in arguments}})

    return make


def as_bytes(reply: Any) -> bytes:
    """Return a reply as the server sent it."""
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, (list, tuple)):
        return b"*%d\r\n%b" % (len(reply), b"".join([as_bytes(each) for each in reply]))
    if isinstance(reply, BaseException):
        text, code = str(reply), given_code(reply)
        text = text if text.startswith(code) else f"{code} {text}"  # the library has cut it off
        return b"-%b\r\n" % " ".join(text.split()).encode()
    data = reply.encode() if isinstance(reply, str) else reply
    return b"$%d\r\n%b\r\n" % (len(data), data)


def answered(error: Exception) -> bytes:
    """Return the refusal of the server that the library has raised.

    Raises:
        OSError: as `as_of_socket`.
    """
    if "ResponseError" in names_of(error):
        return as_bytes(error)
    raise as_of_socket(error)


def as_of_socket(error: Exception) -> Exception:
    """Return what the library has raised as the error of a socket."""
    if "TimeoutError" in names_of(error):
        return TimeoutError(str(error))
    return error if isinstance(error, OSError) else ConnectionResetError(str(error))
