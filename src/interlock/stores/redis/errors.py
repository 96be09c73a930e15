"""The errors for refusals of the server, with advice, and the rights that a user needs."""

from interlock.core.errors import StoreError
from interlock.core.failures import ConnectionEnded, Denied, NoRoom, Refused, TransientRefusal, Unreachable, ended
from interlock.drivers.redis_py import LOGIN, advice_on, code_of
from interlock.stores.redis.resp import Garbage, Reply, ReplyError

PASSES = frozenset((
    "OOM", "READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "MISCONF", "NOREPLICAS",
))  # fmt: skip
"""Codes of refusals that may be temporary; the advice is in `drivers.redis_py`."""
NEED_AN_OPERATOR = ("OOM", "MISCONF")

SERVER = (
    "~interlock:* &interlock:* +evalsha +eval +subscribe +publish +time +hmget +hget +hset +hdel +hgetall +hscan "
    "+pexpireat +scan +ping +info"
)
"""The rights that a user needs on a server."""
DATABASE = "+select"
"""An additional right, for a database other than 0."""
CLUSTER = "+cluster|slots +asking"
"""Additional rights on each node of a cluster."""
SENTINEL_MASTERS = "+sentinel|masters"
"""The rights that a user needs on the Sentinels."""
_RIGHTS = f"'{SERVER} {DATABASE}'; on a cluster also '{CLUSTER}'; on the Sentinels '{SENTINEL_MASTERS}'"


class Redirected(Refused):
    """The server answered MOVED or ASK: another node of the cluster has the name.

    Attributes:
        address: host and port of that node; an empty host means the host of the node that answered.
        asking: True for ASK: the slot is being moved, and the request needs ASKING before it.
    """

    def __init__(self, text: str, where: str = "") -> None:
        super().__init__(f"{where} says {text}: the name lives on another node; connect with redis+cluster://")
        kind, _, place = text.split(" ")[:3]
        host, _, port = place.rpartition(":")
        self.address = (host, int(port))
        self.asking = kind == "ASK"


def see_it_is_there(count: Reply, wanted: int, where: str) -> None:
    """Raise StoreError if the reply to WAIT shows too few replicas with the grant, or no number.

    It is not Refused, because the server had granted the lock before.
    """
    if isinstance(count, ReplyError):
        refused = refusal(count, where)
        raise StoreError(
            f"{refused} Without WAIT no replica can confirm a grant; the lock was released."
        ) from refused
    if count < wanted:
        raise StoreError(
            f"Only {count} of {wanted} replicas of {where} confirmed the grant, so it was released. "
            f"Check replication, or lower ?replicas=."
        )


def refusal(error: ReplyError, where: str, line: str = "") -> Refused:
    """Return the error for a refusal: temporary, redirected, or final.

    Args:
        error: the reply of the server.
        where: the server, for messages.
        line: the key of the request.
    """
    text = str(error)
    code = code_of(error)
    if text.startswith(("MOVED ", "ASK ")):
        refused: Refused = Redirected(text, where)
    elif "max number of clients" in text.lower():
        refused = NoRoom(
            f"{where} has no free connection ({text}). Raise its maxclients, or lower ?max_connections= in the "
            f"processes."
        )
    else:
        advice = advice_on(code, text)
        if code == "NOPERM":
            advice = f"{advice} It needs {_RIGHTS}."
        elif code == "WRONGTYPE" and line:
            advice = f"{advice} Key: {line}."
        refused = (TransientRefusal if code in PASSES else Refused)(f"{where} refused: {text}. {advice}")
        refused.is_unavailable = code == "READONLY"
        if isinstance(refused, TransientRefusal):
            refused.needs_operator = code in NEED_AN_OPERATOR
    refused.code = code
    refused.__cause__ = error
    return refused


def unreachable(where: str, error: BaseException) -> StoreError:
    """Return the error to raise for a connection that could not be made."""
    text = str(error) or type(error).__name__
    if isinstance(error, ReplyError):
        refused = refusal(error, where)
        if refused.code in ("NOAUTH", "WRONGPASS"):
            return Denied(f"Cannot connect to {where}: {text}. {LOGIN}")
        return refused
    if isinstance(error, Garbage):
        return garbled(where, error)
    if "SSL" in text or "certificate" in text.lower():
        return Denied(f"Cannot connect to {where}: {text}. Check the TLS settings (rediss://…?ssl_ca_certs=FILE).")
    if isinstance(error, (ConnectionResetError, BrokenPipeError, EOFError)):
        return ended(where, error)  # the server accepted the connection before: a retry may help
    if isinstance(error, TimeoutError):
        text = "timed out"
    return Unreachable(f"Cannot connect to {where}: {text}. Check that it is running; check host, port and password.")


def garbled(where: str, found: Garbage) -> ConnectionEnded:
    """Return the error to raise for a reply that is not of the Redis protocol."""
    return ConnectionEnded(
        f"{where} does not reply in the Redis protocol: {found.args[0]!r}. Check host and port, and any proxy in "
        f"between."
    )
