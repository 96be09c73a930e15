"""The lines in a bucket: objects that are written only if unchanged since the read.

An object begins with a nonce. The ETag of S3 is a hash of the content, so two equal contents would have the same one,
and a stale write could succeed. An object is never deleted.

**Time.** A bucket reports when an object was written, to the second: a sample for `storekit.server_clock`.  The
`slack` is the error of that estimate: leases of this process are stored longer by it, and leases of others count as
expired later by it. A lease that seems to have expired is checked again by a fresh sample. Observations of this
process count more than the stored times: a lease that it saw renewed lasts at least from its read before that, and a
lease that stayed unchanged for its whole length has expired. Therefore a write does not change the stored lease ends
of other processes' claims.
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
from interlock.core.failures import Denied, Unreachable
from interlock.core.line import QueuedClaim, decode, encode
from interlock.runtime import clock
from interlock.runtime.host_notifier import neighbours
from interlock.runtime.process import checked_pid
from interlock.storekit.compare_and_swap import MOST_SEEN, SwapStore, examined, remember, with_stored_ends
from interlock.storekit.server_clock import STALE, ServerClock

LONGEST_NAME = 300  # characters of the part of an object's name that is made of a lock's name; longer ones are hashed
MARGIN = 0.05  # seconds added to the slack, for the drift of the two clocks between two samples
JUST_NOW = 1.0  # seconds; a younger sample counts as fresh
CLOCK = ".clock"
NOT_FOUND_ERRORS = (NotFoundError, FileNotFoundError)
STATES = (AlreadyExistsError, PreconditionError, NotModifiedError, *NOT_FOUND_ERRORS)
"""Errors about the state of an object."""
SKEWED = ("RequestTimeTooSkewed", "RequestExpired", "date header too old")
"""Errors of S3 and Azure if the clock of the client is wrong by more than 15 minutes."""
_runs_in: int | None = None  # the pid of the process in which obstore's threads run


class Loaded(NamedTuple):
    """An object as it was read or written.

    Attributes:
        version: the version for a conditional write of obstore; None if there is no object.
        text: the text of the line.
        value: the value of a completed run, kept with it.
        nonce: the random number of this write.
    """

    version: dict[str, str] | None
    text: str = ""
    value: str = ""
    nonce: str = ""


class BucketClock(ServerClock):
    """An estimate of the bucket's clock; callers pass the store of obstore.

    Args:
        path: the prefix of the names of the objects that samples write.
    """

    def __init__(self, path: str) -> None:
        super().__init__(MARGIN)
        self._path = path
        self._next = 1.0  # seconds until the next sample: short at first, because each sample narrows the bounds

    def sample(self, bucket: Any, age: float | None = None) -> None:
        """Write an object and ask for its time.

        Args:
            bucket: a store of obstore.
            age: seconds; do nothing if the last sample is younger. None for the time until the next sample.
        """
        if self.age < (self._next if age is None else age):
            return
        path = f"{self._path}{secrets.token_hex(8)}"
        sent = clock.awake_or_not()
        bucket.put(path, b"")
        received = clock.awake_or_not()
        written = bucket.head(path)["last_modified"]
        with contextlib.suppress(BaseError, FileNotFoundError):  # a failed clean-up does not affect the sample
            bucket.delete(path)
        earliest = written.timestamp()
        self.saw(earliest, earliest + (0.0 if written.microsecond else 1.0), sent, received)
        self._next = min(STALE, 2 * self._next)


class Seen(NamedTuple):
    """An observation of a claim by this process.

    Attributes:
        mark: the claim's renewal count, and the stored end of its lease, which a waiter extends when it polls.
        earliest: the earliest possible time of the last renewal, by this process's clock; None if unknown.
        latest: the latest possible time.
    """

    mark: tuple[int, int]
    earliest: float | None
    latest: float


class BucketLines(SwapStore[dict[str, str]]):
    """The lines of one bucket: `storekit.compare_and_swap.SwapStore`.

    Args:
        bucket: a store of obstore.
        prefix: the prefix of the names of all objects.
        where: the bucket, for messages.
        clock: the estimate of the bucket's clock.
        pace: the least seconds between two writes of one object.
    """

    poll_after = longest_look = 30.0  # seconds between two polls of a waiter that has waited long

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
        """Microseconds that the bucket's clock may differ from the estimate."""
        self._ask(self._clock.sample, self._bucket)
        return int(self._clock.error * MICROS)

    @property
    def ahead(self) -> int:
        """Microseconds by which the bucket's clock is ahead of this machine's."""
        return int(self._ahead() * MICROS)

    def _ask(self, call: Any, *args: object, expects: tuple[type[Exception], ...] = (), **how: object) -> Any:
        """Call obstore, and translate its errors.

        Args:
            call, args, how: the function and its arguments.
            expects: errors about the state of the object, which are raised unchanged.

        Raises:
            Denied, Unreachable: nothing was done.
            UnknownOutcome: there was no reply.
        """
        see_that_it_runs_here()
        try:
            return call(*args, **how)
        except STATES as error:
            if "NoSuchBucket" in str(error) or "ContainerNotFound" in str(error):
                raise Denied(f"{self._where} does not exist. Create the bucket first.") from error
            if isinstance(error, expects):
                raise
            raise Unreachable(
                f"{self._where} is unusable now: {first_line(error)}. If this persists, run `interlock doctor`: "
                "locks need a server on which a written object is visible immediately."
            ) from error
        except (PermissionDeniedError, UnauthenticatedError) as error:
            skewed = any(words in str(error) for words in SKEWED)
            advice = "Set this machine's clock (NTP)." if skewed else "Check the rights to read, write and list."
            raise Denied(f"{self._where}: {first_line(error)}. {advice}") from error
        except BaseError as error:
            if "Connect" in str(error):
                raise Unreachable(f"Cannot reach {self._where}: {first_line(error)}") from error
            raise UnknownOutcome(f"{self._where}: {first_line(error)}") from error

    def _path(self, key: str) -> str:
        namespace, _, name = key.partition(SEPARATOR)
        path = f"={quote(namespace, safe='')}/={quote(name, safe='')}"
        return f"{self._prefix}/{path if len(path) <= LONGEST_NAME else '~' + sha256(key.encode()).hexdigest()}"

    def _load(self, key: str) -> Loaded:
        """Read an object; return the cached one if it is unchanged."""
        known = self._known.get(key)
        options = {"if_none_match": known.version["e_tag"]} if known is not None and known.version else None
        try:
            answer = self._ask(
                self._bucket.get, self._path(key), options=options, expects=(NotModifiedError, *NOT_FOUND_ERRORS)
            )
            head, _, text = bytes(self._ask(answer.bytes)).decode().partition("\n")
        except NotModifiedError:
            assert known is not None
            return known
        except NOT_FOUND_ERRORS:
            return Loaded(None)
        if head.count(" ") != 2:
            raise StoreError(f"{self._where} has an object {self._path(key)} that interlock did not write.")
        loaded = Loaded(version_of(answer.meta), text, unquote(head.split(" ")[2]), head[:16])
        remember(self._known, key, loaded)
        return loaded

    def load(self, key: str) -> tuple[dict[str, str] | None, str, int]:
        """See `SwapStore.load`."""
        sent = clock.awake_or_not()
        loaded = self._load(key)
        received = clock.awake_or_not()
        text = self._judged(key, loaded.text, sent, received) if loaded.text else ""
        return loaded.version, text, int(((sent + received) / 2 + self._ahead()) * MICROS)

    def load_kept(self, key: str) -> tuple[str, str, int]:
        """See `SwapStore.load_kept`."""
        loaded = self._load(key)
        return loaded.text, loaded.value, int((clock.awake_or_not() + self._ahead()) * MICROS)

    def _ahead(self) -> float:
        self._ask(self._clock.sample, self._bucket)
        return self._clock.ahead

    def _judged(self, key: str, text: str, sent: float, received: float) -> str:
        """Return a line with lease ends corrected by this process's observations."""
        line = decode(text)
        before, known = self._seen.pop(key, (0.0, {}))
        seen: dict[str, Seen] = {}
        for place in line.places:
            old, mark = known.get(place.id), (place.renewal_count, place.until)
            if old is None or old.mark != mark:
                old = Seen(mark, None if old is None else before, received)
            seen[place.id] = old
        if seen:
            remember(self._seen, key, (sent, seen), MOST_SEEN)
        now = (received + self._ahead()) * MICROS
        if any(place.until <= now for place in line.places):
            self._ask(self._clock.sample, self._bucket, JUST_NOW)
        return encode(line._replace(places=tuple(self._end(place, seen[place.id]) for place in line.places)))

    def _end(self, place: QueuedClaim, seen: Seen) -> QueuedClaim:
        """Return a claim with its lease end corrected by an observation."""
        if place.process_name == neighbours.home:
            return place
        length = self._ahead() * MICROS + place.ttl - self.slack  # the step adds the slack again
        until = min(place.until, int(seen.latest * MICROS + length))
        if seen.earliest is not None:
            until = max(until, int(seen.earliest * MICROS + length))
        return place._replace(until=until)

    def swap(
        self, key: str, version: dict[str, str] | None, text: str, now: int, value: str | None = None
    ) -> dict[str, str] | None:
        """See `SwapStore.swap`; a bucket cannot compare `now`, so the slack covers the error."""
        known = self._known.get(key, Loaded(None))
        if known.version != version and version is not None:
            return None
        kept = known.value if value is None else value
        text = with_stored_ends(known.text, text)
        nonce = secrets.token_hex(8)
        head = f"{nonce} {quote(key, safe='')} {quote(kept, safe='')}"
        body = f"{head}\n{text}".encode()
        if self._pace:
            sleep(max(0.0, self._wrote.get(key, 0.0) + self._pace - clock.now()))
            remember(self._wrote, key, clock.now())
        try:
            put = self._ask(
                self._bucket.put, self._path(key), body, mode="create" if version is None else version, expects=STATES
            )
        except STATES:
            # A program's own obstore client may retry after a lost reply, and then fails on its own first write.
            try:
                loaded = self._load(key)
            except StoreError as error:
                raise UnknownOutcome(str(error)) from error
            return loaded.version if loaded.nonce == nonce else None
        written = Loaded(version_of(put), text, kept, nonce)
        remember(self._known, key, written)
        return written.version

    def swap_many(self, swaps: Sequence[tuple[str, dict[str, str], str]], now: int) -> Sequence[dict[str, str]]:
        """Return nothing: a bucket writes one object at a time."""
        return ()

    def permit(self, place: QueuedClaim) -> None:
        """Do nothing: a bucket permits every grant."""

    def keys(self, prefix: str) -> list[str]:
        """List the keys that begin with `prefix` and have objects."""
        found = []
        for some in self._ask(lambda: list(self._bucket.list(f"{self._prefix}/"))):
            for each in some:
                name = each["path"].removeprefix(f"{self._prefix}/")
                if name.startswith("~"):
                    body = self._ask(lambda path=each["path"]: bytes(self._bucket.get(path).bytes()).decode())
                    found.append(unquote(body.split(" ", 2)[1]))
                elif name.startswith("="):
                    namespace, _, rest = name.partition("/=")
                    found.append(unquote(namespace[1:]) + SEPARATOR + unquote(rest))
        return sorted(key for key in found if key.startswith(prefix))

    def doctor(self) -> list[Check]:
        """Check whether stale writes are refused, and the precision of the clock."""
        path = f"{self._prefix}/{CLOCK}/doctor-{secrets.token_hex(8)}"
        try:
            began = clock.now()
            first = version_of(self._ask(self._bucket.put, path, b"1", mode="create"))
            took = clock.now() - began
            self._ask(self._bucket.put, path, b"2", mode=first)
            wrong = [mode for mode in ("create", first) if self._writes(path, mode)]
            self._ask(self._bucket.delete, path)
            return examined("The bucket's", took, bool(wrong), self.slack)
        except LockError as error:
            return [Check("server", "fail", str(error))]

    def _writes(self, path: str, mode: object) -> bool:
        try:
            self._ask(self._bucket.put, path, b"3", mode=mode, expects=STATES)
        except STATES:
            return False
        return True

    def close(self) -> None:
        """Do nothing: obstore closes idle connections automatically."""


_clocks: WeakValueDictionary[str, BucketClock] = WeakValueDictionary()


def clock_of(server: str, path: str) -> BucketClock:
    """Return the clock of a bucket, shared by all clients of a process."""
    return _clocks.setdefault(f"{server} {path}", BucketClock(path))


def see_that_it_runs_here() -> None:
    """Raise StoreError in a child forked after a bucket was used: its threads are missing."""
    global _runs_in
    here = checked_pid()
    _runs_in = _runs_in or here
    if _runs_in != here:
        raise StoreError(
            "The bucket was used before this process was forked, and its threads do not survive a fork. Use the "
            "bucket only in the children, or start them by spawn or forkserver."
        )


def version_of(found: Any) -> dict[str, str]:
    """Return the version for a conditional write from an object's metadata."""
    return {name: found[name] for name in ("e_tag", "version") if found[name] is not None}


def first_line(error: BaseException) -> str:
    """Return the first line of an error, without obstore's chain of causes."""
    return str(error).partition("\n")[0][:300]
