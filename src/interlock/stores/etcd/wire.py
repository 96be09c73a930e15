"""What stands in etcd, and how it is asked for: requests of the JSON gateway, and who holds a lock by what is there.

A name has a folder of keys, all of them bound to leases:

    PREFIX/NAMESPACE/NAME/c/ID   a claim, as JSON; put once, bound to the claim's own lease
    PREFIX/NAMESPACE/NAME/s/N    slot N of a semaphore; its value is the id of the claim that has it
    PREFIX/NAMESPACE/NAME/d      the record of a completed run, with its value; its lease is as long as that is kept

Nobody writes that a claim holds the lock: claims stand in the order in which etcd created their keys, and those at
the head for which there is room hold it.  What stands before a claim only gets less, so a claim that holds the lock
goes on to.  Its place in that order is its fence.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote, unquote

from interlock.core.claims import PENDING, SEPARATOR, USING, Claim, ClaimView
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.line import has_room, numbered
from interlock.remote.failures import Denied, Passing, Refused, Unreachable
from interlock.runtime import clock
from interlock.runtime.process import HOST, pid

Json: TypeAlias = dict[str, Any]
CLAIMS, SLOTS, DONE = "c/", "s/", "d"
LOGIN = "login"
"""The code of `Refused` where the token of a login is not good any more; `LEASE`: where a lease is over."""
LEASE = "lease"


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
    namespace, name = path.removeprefix(f"{prefix}/").split("/")[:2]
    return unquote(namespace) + SEPARATOR + unquote(name)


class EtcdPlace(NamedTuple):
    """A claim as it stands in etcd.

    Attributes:
        id, units, capacity, ttl, once, who, label, home, since: of the claim, as in `core.line.Place`; in seconds.
        place: in the order; the fence.
        held: since when it holds the lock, if it did so at once; else 0.
        lease: the number of its lease.
    """

    id: str
    units: int
    capacity: int
    ttl: float
    once: bool
    who: str
    label: str
    home: str
    since: float
    place: int
    held: float
    lease: str


class Found(NamedTuple):
    """What stands in a folder.

    Attributes:
        places: the claims in their order.
        slots: by id, which slot a claim has.
        record: value and lease of the record of a completed run; None if there is none.
        revision: of etcd, when it stood so.
    """

    places: tuple[EtcdPlace, ...]
    slots: dict[str, int]
    record: tuple[str, str] | None
    revision: int

    def at(self, id: str) -> int:
        """Return where in the order a claim is; -1 if it is not there."""
        return next((at for at, each in enumerate(self.places) if each.id == id), -1)

    def holds(self, at: int) -> bool:
        """Tell whether the claim there holds the lock."""
        mine = self.places[at]
        return has_room(self.places[:at], mine.units, mine.capacity)  # type: ignore[arg-type]

    def fits(self, claim: Claim) -> bool:
        """Tell whether a claim that comes now would hold the lock at once."""
        return has_room(self.places, claim.spec.units, claim.spec.capacity)  # type: ignore[arg-type]

    def free_slot(self, claim: Claim) -> int | None:
        """Return the lowest number that nobody has; None for a kind of lock that has no numbers."""
        if not has_slot(claim):
            return None
        taken = set(self.slots.values())
        return next(slot for slot in range(len(taken) + 1) if slot not in taken)


def has_slot(claim: Claim) -> bool:
    """Tell whether the holders of such a lock are numbered."""
    return numbered(claim.spec.units, claim.spec.capacity)


def found_in(folder: str, response: Json, revision: int) -> Found:
    """Read the answer to `look`."""
    places, slots, record = [], {}, None
    for each in response.get("kvs", ()):
        kind, _, rest = text_of(each["key"])[len(folder) :].partition("/")
        if kind + "/" == CLAIMS:
            places.append(_place(rest, each))
        elif kind + "/" == SLOTS:
            slots[text_of(each["value"])] = int(rest)
        else:
            record = text_of(each.get("value", "")), each.get("lease", "0")  # none stands for an empty one
    return Found(tuple(sorted(places, key=lambda place: place.place)), slots, record, revision)


def _place(id: str, each: Json) -> EtcdPlace:
    created = int(each["create_revision"])
    names = ("units", "capacity", "ttl", "once", "who", "label", "home", "since")
    try:
        told = json.loads(text_of(each["value"]))
        kept = {name: told[name] for name in names}
        place, held = told.get("place", created), told.get("held", 0.0)
        return EtcdPlace(id=id, place=place, held=held, lease=each.get("lease", "0"), **kept)
    except (ValueError, KeyError) as error:
        raise StoreError(f"etcd has a claim that is none of interlock's ({id[:40]}): {error!r}") from error


def value_of(claim: Claim, holds: bool = False, place: EtcdPlace | None = None) -> str:
    """Return the text of a claim.

    Args:
        claim: which one.
        holds: True if it holds the lock as soon as it is there.
        place: the claim in whose place it stands, for who adopts it.
    """
    spec, now = claim.spec, clock.time_of_day()
    told: Json = {
        "units": spec.units, "capacity": spec.capacity, "ttl": spec.ttl, "once": spec.once, "who": claim.who,
        "label": spec.label, "home": f"{HOST} {pid()}", "since": now if place is None else place.since,
    }  # fmt: skip
    if holds:
        told["held"] = now
    if place is not None:
        told |= {"place": place.place, "held": place.held}
    return json.dumps(told)


def views_of(found: Found, name: str, left: Sequence[float]) -> list[ClaimView]:
    """Return the claims as people see them.

    Args:
        found: the claims.
        name: of the lock.
        left: for each of them, seconds until its lease ends.
    """
    views = []
    for at, (place, seconds) in enumerate(zip(found.places, left, strict=True)):
        host, _, number = place.home.rpartition(" ")
        holds = found.holds(at)
        views.append(
            ClaimView(
                name, place.id, USING if holds else PENDING, place.units, place.capacity,
                place.place if holds else None, host, int(number), place.who, place.label, place.since,
                max(0.0, min(place.ttl, seconds)), (place.held or None) if holds else None,
            )
        )  # fmt: skip
    return views


# -- requests ------------------------------------------------------------------------------------------------


def in_folder(folder: str) -> Json:
    """Return what stands for all keys of a folder."""
    return {"key": b64(folder), "range_end": b64(folder[:-1] + chr(ord("/") + 1))}


def look(folder: str) -> Json:
    """Ask what stands in a folder."""
    return {"request_range": in_folder(folder)}


def put(path: str, value: str, lease: str) -> Json:
    """Write a key that ends with a lease."""
    return {"request_put": {"key": b64(path), "value": b64encode(value.encode()).decode(), "lease": lease}}


def delete(path: str) -> Json:
    """Delete a key."""
    return {"request_delete_range": {"key": b64(path)}}


def deleted(responses: Iterable[Json]) -> int:
    """Return how many keys were deleted."""
    return sum(int(each.get("response_delete_range", {}).get("deleted", 0)) for each in responses)


def is_empty(folder: str) -> Json:
    """Compare: nothing stands in a folder."""
    return {**in_folder(folder), "target": "CREATE", "result": "EQUAL", "create_revision": "0"}


def has_no_news(folder: str, revision: int) -> Json:
    """Compare: nothing was written into a folder after a revision."""
    return {**in_folder(folder), "target": "MOD", "result": "LESS", "mod_revision": str(revision + 1)}


def is_there(path: str) -> Json:
    """Compare: there is a key."""
    return {"key": b64(path), "target": "CREATE", "result": "GREATER", "create_revision": "0"}


def says(path: str, value: str) -> Json:
    """Compare: a key has a value."""
    return {"key": b64(path), "target": "VALUE", "result": "EQUAL", "value": b64(value)}


def watch(folder: str, revision: int) -> str:
    """Ask for what is deleted in a folder, from a revision on."""
    wanted = in_folder(folder + CLAIMS) | {"filters": ["NOPUT"], "start_revision": str(revision)}
    return json.dumps({"create_request": wanted})


def heard(text: str) -> tuple[list[str], int, int]:
    """Read a line of the answer to `watch`.

    Returns:
        The ids of claims that were deleted; the revision up to which all is told, 0 if that is not said; and, if the
        watch can't go on since older revisions are forgotten, the oldest that is known, else 0.

    Raises:
        StoreError: the watch ended otherwise.
    """
    told = json.loads(text)
    if "error" in told:
        raise refusal(told["error"], "etcd")
    result = told["result"]
    gone = [each["kv"] for each in result.get("events", ())]
    compacted = int(result.get("compact_revision", 0))
    if result.get("canceled") and not compacted:
        raise UnknownOutcome(f"etcd ended a watch: {result.get('cancel_reason', 'it does not say why')}")
    told_to = max((int(each["mod_revision"]) for each in gone), default=0)
    return [text_of(each["key"]).rpartition("/")[2] for each in gone], told_to, compacted


def refusal(error: Json | str, where: str) -> StoreError:
    """Return what an error of etcd means.

    Args:
        error: as the gateway gives it.
        where: the member that said so.
    """
    told = error if isinstance(error, dict) else {"message": error}
    code, message = told.get("code", told.get("grpc_code", 0)), str(told.get("message", told))
    said = f"{where} says: {message}"
    if "no leader" in message:
        return Unreachable(f"{said}; is the majority of the cluster there?")
    if "lease not found" in message:
        return _coded(LEASE, said)
    if "invalid auth token" in message or "revision in header is old" in message:
        return _coded(LOGIN, said)
    if "too many requests" in message:
        return Passing(said)
    if code in (1, 2, 4, 14):  # cancelled, unknown, deadline exceeded, unavailable
        return UnknownOutcome(said)
    if code == 8:
        return Refused(f"{said}; make room: compact, defragment and disarm the alarm (etcdctl alarm disarm)")
    if code in (7, 16) or "user" in message or "auth" in message:
        return Denied(f"{said}; check user, password and the role's rights on the prefix")
    return Refused(said)


def _coded(code: str, message: str) -> Refused:
    error = Refused(message)
    error.code = code
    return error
