"""What stands in etcd, and how it is asked for: requests of the JSON gateway, and who holds a lock by what is there.

A name has a folder of keys, all of them bound to leases:

    PREFIX/NAMESPACE/NAME/c/ID   a claim, as text of `core.line`; bound to the claim's own lease
    PREFIX/NAMESPACE/NAME/d      the record of a completed run, with its value; its lease is as long as that is kept

No record says that a claim holds the lock: claims stand in the order in which etcd created their keys, and those at
the head for which there is room hold it.  What stands before a claim only gets less, so a claim that holds the lock
goes on to.  Its place in that order is its fence.  Only what can't be told from the order is written into a claim:
the slot of a semaphore, and, if another claim had the place before, that one's fence.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote, unquote

from interlock.core.claims import MICROS, PENDING, SEPARATOR, Claim
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.line import EMPTY, Clock, Line, Origin, Place, decode, encode, enter, settle
from interlock.remote.failures import Denied, Passing, Refused, Unreachable
from interlock.runtime import clock
from interlock.runtime.process import HOST, pid

Json: TypeAlias = dict[str, Any]
CLAIMS, DONE = "c/", "d"
LIVE = Clock(0, 0)
"""Of no lease: etcd takes out the claims of those that have ended."""


class LoggedOut(Refused):
    """A login is needed, perhaps again: there was none, the server was restarted, or a user was changed."""


class LeaseEnded(Refused):
    """A lease is over."""


WHO = "; check user, password and the role's rights on the prefix"
SPACE = "; make room: compact, defragment and disarm the alarm (etcdctl alarm disarm)"
MEANINGS: tuple[tuple[str, type[StoreError], str], ...] = (
    ("no leader", Unreachable, "; is the majority of the cluster there?"),
    ("too many requests", Passing, ""),
    ("lease not found", LeaseEnded, ""),
    ("user name is empty", LoggedOut, WHO),
    ("invalid auth token", LoggedOut, WHO),
    ("revision in header is old", LoggedOut, WHO),
    ("auth", Denied, WHO),
    ("permission denied", Denied, WHO),
    ("space exceeded", Refused, SPACE),
)
"""What is in a message of etcd, what that means, and what to do."""


@lru_cache(4096)
def b64(text: str) -> str:
    """Return a text as the gateway wants it."""
    return b64encode(text.encode()).decode()


def text_of(coded: str) -> str:
    return b64decode(coded).decode()


@lru_cache(4096)
def folder_of(prefix: str, key: str) -> str:
    """Return where the keys of a line are; of a key without a name, where those of its namespace are."""
    namespace, _, name = key.partition(SEPARATOR)
    return f"{prefix}/{quote(namespace, safe='')}/" + (f"{quote(name, safe='')}/" if name else "")


def key_of(prefix: str, path: str) -> str:
    """Return the key of a line of which a path in etcd is."""
    namespace, _, rest = path.removeprefix(f"{prefix}/").partition("/")
    return unquote(namespace) + SEPARATOR + unquote(rest.partition("/")[0])


class Found(NamedTuple):
    """What stands in a folder.

    Attributes:
        line: the claims, with states by their order; `alive` is the number of a lease, and `held` is 0 if it is not
            known since when it holds the lock: then its slot is not written yet.
        record: value and lease of the record of a completed run; None if there is none.
        revision: of etcd, when it stood so.
    """

    line: Line
    record: tuple[str, str] | None
    revision: int

    def place(self, id: str) -> Place | None:
        """Return the place of a claim; None if it is not there."""
        return next((place for place in self.line.places if place.id == id), None)


def revision(reply: Json) -> int:
    """Return the revision of etcd after a request."""
    return int(reply["header"]["revision"])


def looked(folder: str, reply: Json) -> Found:
    """Read the answer to a transaction whose last operation is `look`."""
    return found_in(folder, reply["responses"][-1]["response_range"], revision(reply))


def found_in(folder: str, response: Json, revision: int = 0) -> Found:
    """Read what stands in a folder."""
    places, record = [], None
    for each in response.get("kvs", ()):
        text, lease = text_of(each.get("value", "")), each.get("lease", "0")  # none stands for an empty one
        if text_of(each["key"]) == folder + DONE:
            record = text, lease
            continue
        try:
            (place,) = decode(text).places
        except ValueError as error:
            raise StoreError(f"etcd has a claim that is none of interlock's ({text[:40]!r}): {error}") from error
        places.append(place._replace(fence=place.fence or int(each["create_revision"]), alive=lease))
    return Found(line_of(places), record, revision)


def line_of(places: Iterable[Place]) -> Line:
    """Return the line of places, in their order, with all holders."""
    line = Line(tuple(sorted(places, key=lambda place: place.fence)))
    step = settle(line, LIVE)
    line = step.line or line
    return line_of(line.places) if step.more else line


def origin() -> Origin:
    """Return this process."""
    return Origin(f"{HOST} {pid()}")


def place_of(claim: Claim, waits: bool) -> Place:
    """Return the place of a claim that comes now; its fence will be the revision that creates it."""
    stamp = int(clock.time_of_day() * MICROS)
    place: Place = enter(EMPTY, Clock(0, stamp), claim, origin(), True, False).answer._replace(fence=0)
    return place._replace(state=PENDING, held=0) if waits else place


# -- requests ------------------------------------------------------------------------------------------------


def in_folder(folder: str) -> Json:
    """Return what stands for all keys of a folder."""
    return {"key": b64(folder), "range_end": b64(folder[:-1] + chr(ord("/") + 1))}


def look(folder: str) -> Json:
    """Ask what stands in a folder."""
    return {"request_range": in_folder(folder)}


def put(path: str, value: Place | str, lease: str) -> Json:
    """Write a claim, or another value, that ends with a lease."""
    text = value if isinstance(value, str) else encode(Line((value,)))
    return {"request_put": {"key": b64(path), "value": b64encode(text.encode()).decode(), "lease": lease}}


def delete(path: str) -> Json:
    """Delete a key."""
    return {"request_delete_range": {"key": b64(path)}}


def has_no_news(folder: str, revision: int) -> Json:
    """Compare: nothing that stands in a folder was written after a revision; 0: nothing stands there."""
    return {**in_folder(folder), "target": "MOD", "result": "LESS", "mod_revision": str(revision + 1)}


def is_there(path: str) -> Json:
    """Compare: there is a key."""
    return {"key": b64(path), "target": "CREATE", "result": "GREATER", "create_revision": "0"}


def watch(prefix: str, revision: int) -> str:
    """Ask for all that is deleted, from after a revision on; 0 for from now on."""
    wanted = in_folder(f"{prefix}/") | {"filters": ["NOPUT"], "start_revision": str(revision and revision + 1)}
    return json.dumps({"create_request": wanted})


def heard(prefix: str, text: str) -> tuple[dict[str, set[str]], int]:
    """Read a line of the answer to `watch`.

    Returns:
        What was deleted, ids of claims by their keys; and the revision up to which all is told, 0 if it does not say.

    Raises:
        StoreError: the watch ended; perhaps since the revision to begin with is forgotten.
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
    """Return what an error of etcd means.

    Args:
        answer: as the gateway gives it.
        where: the member that said so.
    """
    told = answer["error"] if isinstance(answer.get("error"), dict) else answer
    message = str(told.get("message", told.get("error", told)))
    for text, kind, advice in MEANINGS:
        if text in message:
            return kind(f"{where} says: {message}{advice}")
    uncertain = told.get("code", told.get("grpc_code")) in (1, 2, 4, 14)  # cancelled, unknown, too late, unavailable
    return (UnknownOutcome if uncertain else Refused)(f"{where} says: {message}")
