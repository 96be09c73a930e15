"""The keys in etcd, the requests of the JSON gateway, and the claims that hold.

A name has a folder of keys, all of them bound to leases:

    PREFIX/NAMESPACE/NAME/c/ID   a claim, as text of `core.line`; bound to the claim's own lease
    PREFIX/NAMESPACE/NAME/d      the record of a completed run, with its value; its lease ends when the record does
    PREFIX/NAMESPACE/NAME/w/ID   written and deleted when a writer becomes a reader: waiters watch deletions

No key marks a holder: claims are ordered by the creation of their keys, and those at the head that fit hold the lock.
A claim is never added ahead of another one, only deleted or made smaller, so a holder stays a holder.
The revision of the creation is the fence.  The claim's value contains what the order does not give: the slot of a
semaphore, and, if the claim was adopted, the fence of the claim whose place it took.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote, unquote

from interlock.core.claims import MICROS, PENDING, SEPARATOR, Claim
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.failures import Denied, Refused, TransientRefusal, Unreachable
from interlock.core.line import EMPTY, Line, Origin, QueuedClaim, StoreTime, decode, encode, enter, settle
from interlock.runtime import clock
from interlock.runtime.process import HOST, pid

Json: TypeAlias = dict[str, Any]
CLAIMS_FOLDER, RECORD_KEY, SIGNALS_FOLDER = "c/", "d", "w/"
LIVE = StoreTime(0, 0)
"""A clock by which no lease expires: etcd deletes the keys of expired leases itself."""


class LoggedOut(Refused):
    """etcd requires a login: the first, after a restart, or after a change of a user."""


class LeaseEnded(Refused):
    """The lease has expired or was revoked."""


WHO = ". Check user, password and the role's rights on the prefix."
SPACE = ". Free space: compact, defragment and disarm the alarm (etcdctl alarm disarm)."
MEANINGS: tuple[tuple[str, type[StoreError], str], ...] = (
    ("no leader", Unreachable, ". Check that a majority of the cluster is running."),
    ("too many requests", TransientRefusal, ""),
    ("lease not found", LeaseEnded, ""),
    ("user name is empty", LoggedOut, WHO),
    ("invalid auth token", LoggedOut, WHO),
    ("revision in header is old", LoggedOut, WHO),
    ("auth", Denied, WHO),
    ("permission denied", Denied, WHO),
    ("space exceeded", Refused, SPACE),
)
"""Parts of etcd's messages, their errors, and the advice."""


@lru_cache(4096)
def b64(text: str) -> str:
    """Return a text in Base64, as the gateway requires."""
    return b64encode(text.encode()).decode()


def text_of(coded: str) -> str:
    return b64decode(coded).decode()


@lru_cache(4096)
def folder_of(prefix: str, key: str) -> str:
    """Return the folder of a line; for a key without a name, of its namespace."""
    namespace, _, name = key.partition(SEPARATOR)
    return f"{prefix}/{quote(namespace, safe='')}/" + (f"{quote(name, safe='')}/" if name else "")


def key_of(prefix: str, path: str) -> str:
    """Return the key of the line to which a path in etcd belongs."""
    namespace, _, rest = path.removeprefix(f"{prefix}/").partition("/")
    return unquote(namespace) + SEPARATOR + unquote(rest.partition("/")[0])


class Found(NamedTuple):
    """The keys of a folder.

    Attributes:
        line: the claims, with states by their order; `alive` is the number of a claim's lease; `held` is 0 if the
            holder has not written its slot yet, so that the time of its grant is unknown.
        record: value and lease of the record of a completed run; None if there is none.
        revision: the revision of etcd at which the folder was read.
    """

    line: Line
    record: tuple[str, str] | None
    revision: int

    def place(self, id: str) -> QueuedClaim | None:
        """Return a claim of the line; None if it is missing."""
        return next((place for place in self.line.places if place.id == id), None)


def looked(folder: str, reply: Json) -> Found:
    """Parse the reply to a transaction whose last operation is `look`."""
    return found_in(folder, reply["responses"][-1]["response_range"], int(reply["header"]["revision"]))


def found_in(folder: str, response: Json, revision: int = 0) -> Found:
    """Parse the keys of a folder."""
    places, record = [], None
    for each in response.get("kvs", ()):
        path, text = text_of(each["key"]), text_of(each.get("value", ""))  # etcd omits an empty value
        lease = each.get("lease", "0")
        if path == folder + RECORD_KEY:
            record = text, lease
        if not path.startswith(folder + CLAIMS_FOLDER):
            continue
        try:
            (place,) = decode(text).places
        except ValueError as error:
            raise StoreError(f"etcd has a claim that interlock did not write ({text[:40]!r}): {error}") from error
        places.append(place._replace(fence=place.fence or int(each["create_revision"]), liveness_token=lease))
    return Found(line_of(places), record, revision)


def line_of(places: Iterable[QueuedClaim]) -> Line:
    """Return the line of some claims, ordered by fence, with all that fit as holders."""
    line = Line(tuple(sorted(places, key=lambda place: place.fence)))
    step = settle(line, LIVE)
    line = step.line or line
    return line_of(line.places) if step.more else line


def origin() -> Origin:
    """Return this process."""
    return Origin(f"{HOST} {pid()}")


def place_of(claim: Claim, waits: bool) -> QueuedClaim:
    """Return the place of a new claim; its fence will be the revision that creates its key."""
    place: QueuedClaim = enter(
        EMPTY, StoreTime(0, int(clock.time_of_day() * MICROS)), claim, origin(), True, False
    ).answer
    return place._replace(fence=0, state=PENDING, held=0) if waits else place._replace(fence=0)


# -- requests ------------------------------------------------------------------------------------------------


def in_folder(folder: str) -> Json:
    """Return the key range of a folder."""
    return {"key": b64(folder), "range_end": b64(folder[:-1] + chr(ord("/") + 1))}


def look(folder: str) -> Json:
    """Return the operation that reads a folder."""
    return {"request_range": in_folder(folder)}


def put(path: str, value: QueuedClaim | str, lease: str) -> Json:
    """Return the operation that writes a claim, or another value, bound to a lease."""
    text = value if isinstance(value, str) else encode(Line((value,)))
    return {"request_put": {"key": b64(path), "value": b64encode(text.encode()).decode(), "lease": lease}}


def delete(path: str) -> Json:
    """Return the operation that deletes a key, or a folder if its path ends with a slash."""
    return {"request_delete_range": in_folder(path) if path.endswith("/") else {"key": b64(path)}}


def has_no_news(folder: str, revision: int) -> Json:
    """Return the comparison "no key was written after a revision"; 0: an empty folder."""
    return {**in_folder(folder), "target": "MOD", "result": "LESS", "mod_revision": str(revision + 1)}


def is_there(path: str) -> Json:
    """Return the comparison "the key exists"."""
    return {"key": b64(path), "target": "CREATE", "result": "GREATER", "create_revision": "0"}


def watch(prefix: str, revision: int) -> str:
    """Return the request to watch deletions after a revision; 0 for new ones only."""
    wanted = in_folder(f"{prefix}/") | {"filters": ["NOPUT"], "start_revision": str(revision and revision + 1)}
    return json.dumps({"create_request": wanted})


def watch_changes(prefix: str, text: str) -> tuple[dict[str, set[str]], int]:
    """Parse a line of the reply to `watch`.

    Returns:
        The deleted claims' ids by key, and the revision up to which all deletions are reported; 0 if unknown.

    Raises:
        StoreError: the watch ended; perhaps its first revision was compacted.
    """
    told = json.loads(text)
    result = told.get("result", {})
    if not result or result.get("canceled"):
        raise refusal(told, "etcd")
    gone: dict[str, set[str]] = {}
    revision = int(result["header"]["revision"]) if result.get("created") else 0
    for each in result.get("events", ()):
        path, revision = text_of(each["kv"]["key"]), int(each["kv"]["mod_revision"])
        gone.setdefault(key_of(prefix, path), set()).add(path.rpartition("/")[2])
    return gone, revision


def refusal(answer: Json, where: str) -> StoreError:
    """Return the StoreError for an error of etcd.

    Args:
        answer: the reply of the gateway.
        where: the member that sent it.
    """
    told = answer["error"] if isinstance(answer.get("error"), dict) else answer
    message = str(told.get("message", told.get("error", told)))
    for text, kind, advice in MEANINGS:
        if text in message:
            return kind(f"{where} replied: {message}{advice}")
    # Cancelled, unknown, deadline exceeded, unavailable.
    uncertain = told.get("code", told.get("grpc_code")) in (1, 2, 4, 14)
    return (UnknownOutcome if uncertain else Refused)(f"{where} replied: {message}")
