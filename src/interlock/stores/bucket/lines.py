"""The lines in a bucket: each is one object, which is written only if it is still the one that was read.

An object begins with a number that is written only once, since the tag of an object of S3 is a hash of its content,
and two equal ones could not be told apart. It is never deleted.

**Time.** A bucket says when an object was written, to the second. From that, and the moments at which this process
sent the request and had its answer, follows between which bounds the bucket's clock stands beside its own; each
sample narrows them. Half of their distance is the `slack`: own leases are stored as if the clock was at the one end,
and others are judged as if it was at the other. Whoever seems to be over is judged again by a sample of that
moment; and what this process has seen itself counts more than what is stored: a lease that it saw renewed lasts
from its look before that, and one that it saw unchanged for its whole length is over.
"""

import contextlib
import secrets
from collections.abc import Sequence
from hashlib import sha256
from time import sleep
from typing import Any, NamedTuple
from urllib.parse import quote, unquote
from weakref import WeakValueDictionary

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotFoundError,
    NotModifiedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from interlock.core.claims import MICROS, SEPARATOR, Check
from interlock.core.errors import LockError, StoreError, UnknownOutcome
from interlock.core.line import Place, decode, encode
from interlock.remote.failures import Denied, Unreachable
from interlock.remote.neighbours import neighbours
from interlock.runtime import clock
from interlock.runtime.process import checked_pid

LONGEST_NAME = 300  # characters of an object's name that are made of a lock's; longer ones are hashed
MARGIN = 0.05  # seconds that are added to the slack: for the drift of two clocks between two samples
STALE = 600.0  # seconds after which a sample is made anew
JUST_NOW = 1.0  # seconds; a sample that is younger is of that moment
CLOCK = ".clock"
_runs_in: int | None = None  # the process in which obstore has its threads


class Loaded(NamedTuple):
    """An object as it was read, or written.

    Attributes:
        version: as obstore wants it to be compared; None if there was none.
        text: of the line.
        value: that is kept with it.
        nonce: the number that is written once.
    """

    version: dict[str, str] | None
    text: str = ""
    value: str = ""
    nonce: str = ""


class BucketClock:
    """The bucket's clock, beside the one of this process; who asks brings the store of obstore.

    Args:
        path: with which the names of objects begin that only one sample writes.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._low, self._high, self._sampled = -1e18, 1e18, -1e18
        self._age = 1.0  # after which the next sample is made: often at first, since each makes the bounds narrower

    def sample(self, bucket: Any, age: float) -> None:
        """Write an object and ask when that was, unless there is a sample that is younger than `age` in seconds."""
        if clock.awake_or_not() - self._sampled < age:
            return
        path = f"{self._path}{secrets.token_hex(8)}"
        sent = clock.awake_or_not()
        bucket.put(path, b"")
        received = clock.awake_or_not()
        written = bucket.head(path)["last_modified"]
        with contextlib.suppress(BaseError, FileNotFoundError):  # else each sample would stay for ever
            bucket.delete(path)
        low = written.timestamp() - received
        high = written.timestamp() - sent + (0.0 if written.microsecond else 1.0)
        if received - self._sampled > STALE or low > self._high + MARGIN or high < self._low - MARGIN:
            self._low, self._high = low, high  # the first one, or the clock was set
        self._low, self._high = max(self._low, low), min(self._high, high)
        self._low, self._high = min(self._low, self._high), max(self._low, self._high)
        self._sampled, self._age = received, min(STALE, 2 * self._age)

    def ahead(self, bucket: Any) -> float:
        """Return how many seconds the bucket's clock is ahead."""
        self.sample(bucket, self._age)
        return (self._low + self._high) / 2

    def slack(self, bucket: Any) -> float:
        """Return how many seconds that may be wrong."""
        self.sample(bucket, self._age)
        return (self._high - self._low) / 2 + MARGIN


class Seen(NamedTuple):
    """What this process has seen of a claim: its count of renewals, and on the own clock: when it was renewed at the
    earliest (None: that is not known) and at the latest."""

    beat: int
    earliest: float | None
    latest: float


class BucketLines:
    """The lines of one bucket, as `stores.swap.AsyncSwapStore` in plain calls.

    Args:
        bucket: a store of obstore.
        prefix: with which the names of all objects begin.
        where: the bucket, for messages.
        clock: of the bucket.
        pace: seconds between two writes of one object.
    """

    look_again = longest_look = 30.0  # seconds: a waiter of another host asks twice a minute in the end

    def __init__(self, bucket: Any, prefix: str, where: str, clock: BucketClock, pace: float) -> None:
        self._bucket = bucket
        self._prefix = prefix
        self._where = where
        self._clock = clock
        self._pace = pace
        self._wrote: dict[str, float] = {}
        self._known: dict[str, Loaded] = {}
        self._seen: dict[str, tuple[float, dict[str, Seen]]] = {}

    @property
    def slack(self) -> int:
        """Microseconds that the bucket's clock may differ from what is known of it."""
        return int(self._ask(self._clock.slack, self._bucket) * MICROS)

    def _ask(self, call: Any, *args: object, **how: object) -> Any:
        """Call obstore, but for what says something about the object.

        Raises:
            Denied, Unreachable: nothing was done.
            UnknownOutcome: there was no answer.
        """
        see_that_it_runs_here()
        try:
            return call(*args, **how)
        except (AlreadyExistsError, PreconditionError, NotFoundError, NotModifiedError, FileNotFoundError) as error:
            if "NoSuchBucket" in str(error) or "ContainerNotFound" in str(error):
                raise Denied(f"{self._where} is not there: make the bucket first") from error
            raise
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise Denied(f"{self._where}: {first_line(error)}; may you read, write and list there?") from error
        except BaseError as error:
            if "Connect" in str(error):
                raise Unreachable(f"{self._where} can't be reached: {first_line(error)}") from error
            raise UnknownOutcome(f"{self._where}: {first_line(error)}") from error

    def _path(self, key: str) -> str:
        namespace, _, name = key.partition(SEPARATOR)
        path = f"={quote(namespace, safe='')}/={quote(name, safe='')}"
        return f"{self._prefix}/{path if len(path) <= LONGEST_NAME else '~' + sha256(key.encode()).hexdigest()}"

    def _load(self, key: str) -> Loaded:
        """Read an object, if it is another one than was read or written last."""
        known = self._known.get(key)
        options = {"if_none_match": known.version["e_tag"]} if known is not None and known.version else None
        try:
            answer = self._ask(self._bucket.get, self._path(key), options=options)
            head, _, text = bytes(self._ask(answer.bytes)).decode().partition("\n")
        except NotModifiedError:
            assert known is not None
            return known
        except (FileNotFoundError, NotFoundError):
            return Loaded(None)
        if head.count(" ") != 2:
            raise StoreError(f"{self._where} has an object {self._path(key)} that is none of interlock's")
        self._known[key] = loaded = Loaded(version_of(answer.meta), text, unquote(head.split(" ")[2]), head[:16])
        return loaded

    def load(self, key: str) -> tuple[dict[str, str] | None, str, int]:
        """As `AsyncSwapStore.load`."""
        sent = clock.awake_or_not()
        loaded = self._load(key)
        received = clock.awake_or_not()
        text = self._judged(key, loaded.text, sent, received) if loaded.text else ""
        return loaded.version, text, int(((sent + received) / 2 + self._ahead()) * MICROS)

    def load_kept(self, key: str) -> tuple[str, str, int]:
        """As `AsyncSwapStore.load_kept`."""
        loaded = self._load(key)
        return loaded.text, loaded.value, int((clock.awake_or_not() + self._ahead()) * MICROS)

    def _ahead(self) -> float:
        return float(self._ask(self._clock.ahead, self._bucket))

    def _judged(self, key: str, text: str, sent: float, received: float) -> str:
        """Return a line with the ends of leases as this process knows them."""
        line = decode(text)
        before, known = self._seen.pop(key, (0.0, {}))
        seen: dict[str, Seen] = {}
        for place in line.places:
            old = known.get(place.id)
            if old is None or old.beat != place.beat:
                old = Seen(place.beat, None if old is None else before, received)
            seen[place.id] = old
        if seen:
            self._seen[key] = sent, seen
        now = (received + self._ahead()) * MICROS
        if any(place.until <= now for place in line.places):
            self._ask(self._clock.sample, self._bucket, JUST_NOW)
        return encode(line._replace(places=tuple(self._end(place, seen[place.id]) for place in line.places)))

    def _end(self, place: Place, seen: Seen) -> Place:
        """Return a place with the end of its lease as it was seen; own ones are known."""
        if place.home == neighbours.home:
            return place
        length = self._ahead() * MICROS + place.ttl - self.slack  # which is added to it where it is judged
        until = min(place.until, int(seen.latest * MICROS + length))
        if seen.earliest is not None:
            until = max(until, int(seen.earliest * MICROS + length))
        return place._replace(until=until)

    def swap(
        self, key: str, version: dict[str, str] | None, text: str, now: int, value: str | None = None
    ) -> dict[str, str] | None:
        """As `AsyncSwapStore.swap`; what the bucket's clock shows is known to `slack`."""
        known = self._known.get(key, Loaded(None))
        if known.version != version and version is not None:
            return None
        kept = known.value if value is None else value
        nonce = secrets.token_hex(8)
        head = f"{nonce} {quote(key, safe='')} {quote(kept, safe='')}"
        body = f"{head}\n{text}".encode()
        if self._pace:
            sleep(max(0.0, self._wrote.get(key, 0.0) + self._pace - clock.now()))
            self._wrote[key] = clock.now()
        try:
            put = self._ask(self._bucket.put, self._path(key), body, mode="create" if version is None else version)
        except (AlreadyExistsError, PreconditionError, NotFoundError, FileNotFoundError):
            # A program's own store of obstore tries again by itself, and may have found what it wrote at first.
            loaded = self._load(key)
            return loaded.version if loaded.nonce == nonce else None
        self._known[key] = Loaded(version_of(put), text, kept, nonce)
        return self._known[key].version

    def swap_many(self, swaps: Sequence[tuple[str, Any, str]], now: int) -> Sequence[Any]:
        """As `AsyncSwapStore.swap_many`: a bucket writes one object at a time."""
        return ()

    def permit(self, place: Place) -> None:
        """As `AsyncSwapStore.permit`."""

    def keys(self, prefix: str) -> list[str]:
        """List the keys that begin with a text and have objects."""
        found = []
        for some in self._ask(lambda: list(self._bucket.list(f"{self._prefix}/"))):
            for each in some:
                name = each["path"].removeprefix(f"{self._prefix}/")
                if name.startswith("~"):
                    head = bytes(self._ask(self._bucket.get, each["path"]).bytes()).split(b"\n", 1)[0].decode()
                    found.append(unquote(head.split(" ")[1]))
                elif name.startswith("="):
                    namespace, _, rest = name.partition("/=")
                    found.append(unquote(namespace[1:]) + SEPARATOR + unquote(rest))
        return sorted(key for key in found if key.startswith(prefix))

    def doctor(self) -> list[Check]:
        """Look whether a write that is not to be done is refused, and at the clock."""
        path = f"{self._prefix}/{CLOCK}/doctor-{secrets.token_hex(8)}"
        try:
            began = clock.now()
            first = version_of(self._ask(self._bucket.put, path, b"1", mode="create"))
            took = clock.now() - began
            self._ask(self._bucket.put, path, b"2", mode=first)
            wrong = [mode for mode in ("create", first) if self._writes(path, mode)]
            self._ask(self._bucket.delete, path)
            slack = self.slack / MICROS
        except LockError as error:
            return [Check("server", "fail", str(error))]
        checks = [Check("server", "ok", f"writes in {took * 1000:.1f} ms")]
        words = f"known to {slack:.2f} s; leases of others count as over {2 * slack:.2f} s late"
        checks.append(Check("clock", "ok", words))
        if wrong:
            words = "it writes although somebody else has written: do not use it (interlock doctor --race shows it)"
            return [*checks, Check("conditional writes", "fail", words)]
        return [*checks, Check("conditional writes", "ok", "a stale write is refused")]

    def _writes(self, path: str, mode: Any) -> bool:
        try:
            self._ask(self._bucket.put, path, b"3", mode=mode)
        except (AlreadyExistsError, PreconditionError):
            return False
        return True

    def close(self) -> None:
        """Nothing: obstore closes what is unused."""


_clocks: WeakValueDictionary[str, BucketClock] = WeakValueDictionary()


def clock_of(server: str, path: str) -> BucketClock:
    """Return the clock of a bucket: one in a process, else what one connection calls over lasts for another."""
    return _clocks.setdefault(f"{server} {path}", BucketClock(path))


def see_that_it_runs_here() -> None:
    """Raise StoreError in a child that was forked after a bucket was used: it would wait for ever for an answer."""
    global _runs_in
    here = checked_pid()
    _runs_in = _runs_in or here
    if _runs_in != here:
        raise StoreError(
            "a bucket was used before this process was forked, and the threads that speak to it are not here: use it "
            "in the children only, or start them by spawn or forkserver"
        )


def version_of(found: Any) -> dict[str, str]:
    """Return a version as obstore wants it, of what it says about an object."""
    return {name: found[name] for name in ("e_tag", "version") if found[name] is not None}


def first_line(error: BaseException) -> str:
    """Return what an error says, without the sources that obstore puts behind it."""
    return str(error).partition("\n")[0][:300]
