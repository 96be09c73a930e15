# Generated from _async/turns.py by tools/unasync.py; change that one.
"""Who waits in this process or event loop, and whose turn it is: one watch for each name that somebody waits for.

A waiter knows what stands before it, which only gets less. So a deletion is looked into only if there seems to be
room for a waiter then; what etcd says in that linearizable read counts, not what was heard.
"""

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

from interlock.core.claims import Claim, fits
from interlock.core.errors import StoreError
from interlock.core.queue import EnterResult, Granted, Tells
from interlock.runtime import _threads as rt
from interlock.runtime.process import Descriptor
from interlock.stores.etcd import wire
from interlock.stores.etcd._sync.gateway import Gateway
from interlock.stores.etcd.wire import Found

SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 0.5  # seconds between two attempts to watch


class Turn:
    """One who waits.

    Attributes:
        claim, waiter: who, and what wakes it.
        before: units and capacity of the claims before it, by id; None until etcd has answered.
        revision: of etcd, when it stood so.
        gone: claims of which it was heard that they were deleted, perhaps after that.
    """

    __slots__ = ("before", "claim", "gone", "revision", "waiter")

    def __init__(self, claim: Claim, waiter: Tells) -> None:
        self.claim = claim
        self.waiter = waiter
        self.before: dict[str, tuple[int, int]] | None = None
        self.revision = 0
        self.gone: set[str] = set()

    def stands(self, found: Found, at: int) -> None:
        """Take what etcd says is before it."""
        if found.revision >= self.revision:
            self.revision = found.revision
            self.gone &= {each.id for each in found.places}
            places = [each for each in found.places[:at] if each.id not in self.gone]
            self.before = {each.id: (each.units, each.capacity) for each in places}

    def lacks(self, ids: Iterable[str]) -> bool:
        """Take that claims were deleted; True if it seems to be its turn, or it was deleted itself."""
        self.gone.update(ids)
        if self.before is None:
            return False
        was_before = [self.before.pop(id, None) for id in ids]
        return self.claim.id in ids or (any(was_before) and self.has_room())

    def has_room(self) -> bool:
        """Tell whether it seems to be its turn."""
        spec = self.claim.spec
        return self.before is not None and fits(spec.units, spec.capacity, list(self.before.values()))


class Watched:
    """A name that somebody waits for."""

    __slots__ = ("file", "revision", "runs", "turns")

    def __init__(self) -> None:
        self.turns: dict[str, Turn] = {}
        self.revision = 0  # what happened until then is known
        self.runs = False
        self.file: Descriptor | None = None


class Turns:
    """Those who wait.

    Args:
        gateway: the cluster.
        look: says where claims of one key stand, by a linearizable read.
        prefix: with which keys begin.
    """

    def __init__(
        self, gateway: Gateway, look: Callable[[list[Claim]], rt.Result[list[EnterResult]]], prefix: str
    ) -> None:
        self._gateway = gateway
        self._look = look
        self._prefix = prefix
        self._watched: dict[str, Watched] = {}
        self._mutex = rt.Mutex()
        self._closed = False

    def add(self, claim: Claim, waiter: Tells) -> None:
        """Wait, before the request which puts the claim into the line: what is deleted from then on is heard."""
        with self._mutex:
            watched = self._watched.setdefault(claim.spec.key, Watched())
            watched.turns.setdefault(claim.id, Turn(claim, waiter)).waiter = waiter

    def remove(self, claim: Claim) -> None:
        """Wait no more."""
        with self._mutex:
            watched = self._watched.get(claim.spec.key)
            if watched is not None:
                watched.turns.pop(claim.id, None)
                if not watched.turns and not watched.runs:
                    self._watched.pop(claim.spec.key, None)

    def stands(self, claim: Claim, found: Found, at: int) -> bool:
        """Take where a waiter stands, and watch what is before it; True if it seems to be its turn meanwhile."""
        with self._mutex:
            watched = self._watched.get(claim.spec.key)
            turn = None if watched is None else watched.turns.get(claim.id)
            if watched is None or turn is None or self._closed:
                return False
            turn.stands(found, at)
            if watched.runs:
                return turn.has_room()
            watched.runs, watched.revision = True, found.revision
        if rt.spawn("interlock-listener", self._run, claim.spec.key, watched) is None:
            watched.runs = False  # the interpreter ends: who waits looks now and then
        return False

    def _run(self, key: str, watched: Watched) -> None:
        pause = SHORTEST_PAUSE
        try:
            while not self._ended(key, watched):
                try:
                    self._listen(key, watched)
                    pause = SHORTEST_PAUSE
                except StoreError:
                    self._gateway.distrust()
                    self._wake(watched)
                    rt.sleep(pause)
                    pause = min(LONGEST_PAUSE, 2 * pause)
        finally:
            watched.runs = False
            self._wake(watched)

    def _ended(self, key: str, watched: Watched) -> bool:
        with self._mutex:
            watched.file = None
            if watched.turns and not self._closed:
                return False
            watched.runs = False
            if self._watched.get(key) is watched:
                self._watched.pop(key)
            return True

    def _listen(self, key: str, watched: Watched) -> None:
        def hear(line: str) -> None:
            ids, revision, compacted = wire.heard(line)
            watched.revision = max(watched.revision, compacted or revision)
            with self._mutex:
                turns = [turn for turn in watched.turns.values() if ids and turn.lacks(ids)]
            if compacted:
                self._wake(watched)
            if turns:
                self._tell(watched, turns)

        def opened(socket: Any) -> None:
            watched.file = None if socket is None else Descriptor(socket.fileno())

        body = wire.watch(wire.folder_of(self._prefix, key), watched.revision + 1)
        self._gateway.listen(body, hear, opened)

    def _tell(self, watched: Watched, turns: list[Turn]) -> None:
        """Tell those whose turn it is, and let those look who are gone."""
        answers = self._look([turn.claim for turn in turns])
        for turn, answer in zip(turns, answers, strict=True):
            if answer.state == "using":
                watched.turns.pop(turn.claim.id, None)
                turn.waiter.tell(Granted(turn.claim.id, answer.fence, answer.slot))
            elif answer.state != "pending":
                turn.waiter.tell()

    def _wake(self, watched: Watched) -> None:
        for turn in list(watched.turns.values()):
            turn.waiter.tell()

    def close(self) -> None:
        """Wait no more; never waits."""
        self._closed = True
        for watched in list(self._watched.values()):
            self._wake(watched)
            file = watched.file
            if file is not None:
                with contextlib.suppress(OSError):
                    file.shut_down()
