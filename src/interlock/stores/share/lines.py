"""The lines in a shared folder: compare and swap by the rename of a token whose name is never used again.

A swap from version N to N+1 writes the new line, renames the token `t.N.NONCE` to `t.N+1.OTHER`, and removes the old
line.  The server performs that rename for one client only: afterwards the source does not exist, and no token gets
the same name again.  So a stale listing, a client that slept, and a request that arrives late or twice all end in "no
such file".  A hard link to the *number* N+1 would be a name that can be made again, after its removal.

A name is created by the rename of a prepared folder with its first token and line.  It is never empty afterwards, so
the second of two such renames is refused.  It is never removed.

**Lost replies.**  A rename that ends in "no such file" may have been performed: a client sends a request again if no
reply comes.  Each line lists the nonces of the versions before it, which show whether the write is among them.

**Clean-up** needs no clock: the line of a version older than the present token can be removed, and so can another
line with the present number, because the token that its writer would rename does not exist.  A line with the *next*
number is never removed by others: its writer may sleep, and publish it tomorrow.

**Time.**  A lease of another process has expired if this process has seen it unchanged for its whole length, by its
own clock: the clocks of other machines, and the times of files, of which some clients set their own, are not
compared.  With `one_clock`, the age of a line counts as observed.  A write must not change the stored end of an
unrenewed lease, or it would look like a renewal.
"""

import errno
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from time import sleep
from typing import NamedTuple, TypeAlias
from urllib.parse import quote, unquote

from interlock.core.claims import MICROS, SEPARATOR, Check
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.line import Origin, QueuedClaim, decode, encode
from interlock.runtime import clock, log
from interlock.runtime.host_notifier import neighbours
from interlock.runtime.waiters import Notifier
from interlock.storekit.compare_and_swap import MOST_SEEN, SwapSteps, SwapStore, remember
from interlock.stores.share.checks import examine
from interlock.stores.share.folder import INCOMPLETE, OUTDATED, SharedFolder, Token, encoded, path_of, unusable
from interlock.stores.share.system import System

HISTORY = 16  # nonces of former versions in a line
SETTLES = 10.0  # seconds until a listing shows a token whose line can be read
SHORTEST_PAUSE, LONGEST_PAUSE = 0.001, 0.25  # seconds before a stale folder is listed again
ROUNDING = 1.0  # seconds; times of files may be whole seconds
DRIFT = 1000  # a lease of others counts as longer by this part of it, for clocks of different speed
GONE = (errno.ENOENT, errno.ESTALE)
EXISTS = (errno.EEXIST, errno.ENOTEMPTY, errno.EPERM, errno.EACCES)  # sshfs reports an existing target as EPERM
PROCESS = secrets.token_hex(8)
"""Identifies this process: cloned machines have equal host names, and perhaps equal process ids."""


class Loaded(NamedTuple):
    """A line as it was read or written.

    Attributes:
        token: its version; None if the name does not exist.
        text: the text of the line.
        value: the value of a completed run, kept with it.
        before: the nonces of the versions before, the latest last.
    """

    token: Token | None
    text: str = ""
    value: str = ""
    before: tuple[str, ...] = ()


NOTHING = Loaded(None)
Seen: TypeAlias = tuple[tuple[int, int], float]
"""An observation of a claim of another process: its renewal count and the stored end of its lease, which a waiter
extends when it polls; and when this process saw them first, by its own clock."""


class ProcessNotifier(Notifier):
    """The notifier of this host, whose claims also identify their process."""

    waiters = neighbours.waiters
    notify_others = staticmethod(neighbours.notify_others)

    @property
    def origin(self) -> Origin:
        """This process in listings."""
        return neighbours.origin._replace(liveness_token=PROCESS)


class ShareSteps(SwapSteps[Token]):
    """The steps on a shared folder."""

    notifier = ProcessNotifier()


class ShareLines(SwapStore[Token]):
    """The lines of a shared folder: `storekit.compare_and_swap.SwapStore`.

    Args:
        path: the absolute path of the folder.
        one_clock: True if the file server sets the times of all files.
        system: performs the system calls.
    """

    poll_after = longest_look = 2.0  # seconds between two polls of a waiter that has waited long
    slack = 50_000  # microseconds; `ahead` is exact

    def __init__(self, path: str, one_clock: bool, system: System) -> None:
        self._folder = SharedFolder(path, system)
        self._perform = system.perform
        self._one_clock = one_clock
        self._known: dict[str, Loaded] = {}
        self._seen: dict[str, dict[str, Seen]] = {}

    # -- reading --

    def load(self, key: str) -> tuple[Token | None, str, int]:
        """See `SwapStore.load`."""
        loaded = self._load(key)
        received = clock.awake_or_not()
        return loaded.token, self._estimated(key, loaded, received) if loaded.text else "", self._micros(received)

    def load_kept(self, key: str) -> tuple[str, str, int]:
        """See `SwapStore.load_kept`."""
        loaded = self._load(key)
        return loaded.text, loaded.value, self._micros(clock.awake_or_not())

    @property
    def ahead(self) -> int:
        """Microseconds by which the lines' time of day is ahead of this machine's clock; it never changes."""
        return int(self._folder.ahead * MICROS)

    def _micros(self, moment: float) -> int:
        """Return the time of day in microseconds at a moment of this machine's clock."""
        return int(moment * MICROS) + self.ahead

    def _load(self, key: str) -> Loaded:
        """Return the present line; the cached one if a listing shows its token.

        Raises:
            StoreError: the folder cannot be read now.
        """
        self._folder.prepare()
        path, until, pause = self._folder.path_of(key), clock.now() + SETTLES, SHORTEST_PAUSE
        stale, late = self._folder.is_cached, False
        while True:
            try:
                if stale:
                    with suppress(OSError):
                        self._folder.touch(path)
                return self._found(key, path, late)
            except OSError as error:
                if late or error.errno not in GONE:
                    raise unusable(path, error) from error
            sleep(pause)
            pause, stale, late = min(LONGEST_PAUSE, 2 * pause), True, clock.now() > until

    def _found(self, key: str, path: str, late: bool) -> Loaded:
        """Return the line that a new listing shows.

        Args:
            key, path: the name, and its folder.
            late: True to accept an older version than before: the server has lost writes that it had confirmed.

        Raises:
            OSError: the listing is old, or was read during a swap; or the folder is unreadable.
        """
        token, files = self._folder.listing(path)
        known = self._known.get(key, NOTHING)
        if token == known.token and (token is not None or not files):
            return known
        if token is None or (known.token is not None and token.number <= known.token.number):
            if known.token is None or not late:
                raise OSError(errno.ESTALE, OUTDATED)
            log.warn("%s has lost its latest version: the server has lost confirmed writes.", path)
            self._known.pop(key, None)
            return self._found(key, path, late)
        loaded = self._read(key, path, token)
        remember(self._known, key, loaded)
        old = (each for each in files if each[0] != "t" and each[1] != token and each[1].number <= token.number)
        self._folder.remove(*(path_of(path, *each) for each in old))
        return loaded

    def _read(self, key: str, path: str, token: Token) -> Loaded:
        digest, _, rest = self._folder.read(path_of(path, "d", token)).partition(b"\n")
        if sha256(rest).hexdigest().encode() != digest:
            raise OSError(errno.ESTALE, INCOMPLETE)
        head, _, text = rest.decode().partition("\n")
        nonce, written_key, before, value = head.split(" ")
        if (nonce, unquote(written_key)) != (token.nonce, key):
            raise StoreError(f"{path} has the line of another name. Inspect it, and remove it while nobody uses it.")
        return Loaded(token, text, unquote(value), tuple(filter(None, before.split(","))))

    def _estimated(self, key: str, loaded: Loaded, received: float) -> str:
        """Return a line with the leases of other processes as this process has observed them.

        Args:
            key, loaded: the line.
            received: when it was the present one, by this process's clock.
        """
        line, known, seen = decode(loaded.text), self._seen.pop(key, {}), dict[str, Seen]()
        foreign = [place for place in line.places if not is_own(place)]
        new = self._one_clock and any(place.id not in known for place in foreign)
        written = received - self._age(self._folder.path_of(key), loaded.token) if new else received
        for place in foreign:
            mark = place.renewal_count, place.until
            old = known.get(place.id, (mark, written))
            seen[place.id] = old if old[0] == mark else (mark, received)
        if seen:
            remember(self._seen, key, seen, MOST_SEEN)
        places = (self._ending(place, seen[place.id]) if place.id in seen else place for place in line.places)
        return encode(line._replace(places=tuple(places)))

    def _ending(self, place: QueuedClaim, seen: Seen) -> QueuedClaim:
        """Return a claim of another process with the end of its lease as this process estimates."""
        return place._replace(until=self._micros(seen[1]) + place.ttl + place.ttl // DRIFT)

    def _stored(self, key: str, before: str, text: str) -> str:
        """Return a line in which leases that this process has only estimated keep their stored ends.

        If this process stored its own estimates of their ends, every process would take them for renewals.

        Args:
            key: the name.
            before: the line as it is stored.
            text: the line to write.
        """
        stored = {place.id: place.until for place in decode(before).places} if before else {}
        line, seen = decode(text), self._seen.get(key, {})
        estimated = {each.id for each in line.places if each.id in seen and each == self._ending(each, seen[each.id])}
        places = (
            each._replace(until=stored.get(each.id, each.until)) if each.id in estimated else each
            for each in line.places
        )
        return encode(line._replace(places=tuple(places)))

    def _age(self, path: str, token: Token | None) -> float:
        """Return the seconds since a version was written, by the server's clock; no claim in it is younger."""
        assert token is not None
        try:
            now = self._folder.touch(path)
            return max(0.0, now - self._perform(os.stat, path_of(path, "d", token)).st_mtime - ROUNDING)
        except OSError:
            return 0.0  # it has changed in the meantime

    # -- writing --

    def swap(self, key: str, version: Token | None, text: str, now: int, value: str | None = None) -> Token | None:
        """See `SwapStore.swap`."""
        known, path, nonce = self._known.get(key, NOTHING), self._folder.path_of(key), secrets.token_hex(8)
        if known.token != version:
            return None
        token, before, where = Token(1, nonce), known.before, os.path.join(os.path.dirname(path), f".new-{nonce}/")
        if version is not None:
            token, before, where = Token(version.number + 1, nonce), (*before, version.nonce)[-HISTORY:], path
        kept = known.value if value is None else value
        loaded = Loaded(token, self._stored(key, known.text, text), kept, before)
        written = [path_of(where, "d", token)]
        try:
            if version is None:
                self._folder.make(where)
                written += [path_of(where, "t", token), where]
                self._folder.create(written[1])
            self._folder.create(written[0], content(key, loaded, nonce))
        except OSError as error:
            self._folder.remove(*written)
            if version is not None and error.errno in GONE:  # removed, since another client has swapped
                return None
            raise unusable(path, error) from error
        old, new = (where, path) if version is None else (path_of(path, "t", version), path_of(path, "t", token))
        if not self._publish(key, old, new, version, nonce):
            self._folder.remove(*written)
            return None
        remember(self._known, key, loaded)
        if version is not None:
            self._folder.remove(path_of(path, "d", version))
        return token

    def _publish(self, key: str, old: str, new: str, version: Token | None, nonce: str) -> bool:
        """Rename a token, or the folder of a new name; return whether the version `nonce` was written.

        Raises:
            UnknownOutcome: it may have been written, or be written later.
        """
        for _ in range(2):
            try:
                self._perform(os.rename, old, new)
                return True
            except OSError as error:
                why = f"{new}: a rename may have been performed ({error.strerror})."
                if error.errno not in (*GONE, *(EXISTS if version is None else ())):
                    raise UnknownOutcome(why) from error
            try:
                done = self._outcome(key, version, nonce)
            except StoreError as error:
                raise UnknownOutcome(f"{why} {error}") from error
            if done is not None:
                return done
        raise UnknownOutcome(why)

    def _outcome(self, key: str, version: Token | None, nonce: str) -> bool | None:
        """Return whether the version `nonce` was written after `version`; None if that is not known."""
        loaded = self._load(key)
        if loaded.token is None:
            return None
        chain = (*loaded.before, loaded.token.nonce)
        another = loaded.token.number == len(chain) if version is None else version.nonce in loaded.before
        return True if nonce in chain else False if another else None

    def swap_many(self, swaps: Sequence[tuple[str, Token, str]], now: int) -> Sequence[Token]:
        """Return nothing: a folder changes one line at a time."""
        return ()

    def permit(self, place: QueuedClaim) -> None:
        """Do nothing: a folder permits every grant."""

    def keys(self, prefix: str) -> list[str]:
        """List the keys that begin with `prefix`."""
        self._folder.prepare()
        namespace, only, _ = prefix.partition(SEPARATOR)
        found: list[str] = []
        try:
            for space in [encoded(namespace)] if only else self._perform(os.listdir, self._folder.path):
                names: list[str] = []
                if space[0] in "=~":
                    with suppress(FileNotFoundError):
                        names = self._perform(os.listdir, os.path.join(self._folder.path, space))
                for name in names:
                    found += self._keys_in(space, name)
        except OSError as error:
            raise unusable(self._folder.path, error) from error
        return sorted(key for key in found if key.startswith(prefix))

    def _keys_in(self, space: str, name: str) -> list[str]:
        """Return the key of a name's folder; nothing if it changes at each of several reads."""
        if space[0] == name[0] == "=":
            return [unquote(space[1:]) + SEPARATOR + unquote(name[1:])]
        path, pause = os.path.join(self._folder.path, space, name), SHORTEST_PAUSE
        while name[0] in "=~" and pause < LONGEST_PAUSE:
            try:
                token, _ = self._folder.listing(path)
                if token is None:
                    break
                return [unquote(self._folder.read(path_of(path, "d", token)).decode().split(" ", 2)[1])]
            except OSError as error:
                if error.errno not in GONE:
                    raise
            sleep(pause)  # a swap has removed the line
            pause *= 2
        return []

    def doctor(self) -> list[Check]:
        """Check the folder, its mount, its clock and its renames."""
        return examine(self._folder)

    def close(self) -> None:
        """Do nothing: no file stays open."""


def content(key: str, loaded: Loaded, nonce: str) -> bytes:
    """Return the content of the file of a line, which begins with a digest of the rest."""
    head = f"{nonce} {quote(key, safe='')} {','.join(loaded.before)} {quote(loaded.value, safe='')}"
    rest = f"{head}\n{loaded.text}".encode()
    return sha256(rest).hexdigest().encode() + b"\n" + rest


def is_own(place: QueuedClaim) -> bool:
    """Return True for a claim of this process, whose stored end is by its own clock."""
    return place.liveness_token == PROCESS and place.process_name == neighbours.home
