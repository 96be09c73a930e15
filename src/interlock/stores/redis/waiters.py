"""Who waits in this process, by claim: what is told may come before anybody is ready to hear it."""

import threading
from typing import Any

from interlock._redis.resp import MISSING, Parser
from interlock.core.queue import Told
from interlock.stores.redis.handoff import Heirs

Heir = tuple[str, int]
"""Who comes next: its claim, and its fence."""


class Bells:
    """The waiting claims of one store, and who of them comes after whom."""

    def __init__(self) -> None:
        self.start_afresh()

    def start_afresh(self) -> None:
        """Forget all: a forked child waits for nothing."""
        # Re-entrant: the garbage collector may release a grant in the middle of any of these steps.
        self._mutex = threading.RLock()
        self.bells: dict[str, Any] = {}
        self._news: dict[str, Told] = {}
        self._patience: dict[str, float] = {}
        self._rung: set[str] = set()
        self._heirs = Heirs()

    def expect(self, id: str) -> None:
        """Keep what will be told to a claim that has no bell yet."""
        self.bells.setdefault(id, None)

    def wait_so_long(self, id: str, seconds: float) -> None:
        """Keep for a claim without a bell how long it should wait at most."""
        if id in self.bells and self.bells[id] is None:
            self._patience[id] = seconds

    def hang(self, id: str, bell: Any) -> tuple[float, Told | None]:
        """Give a claim its bell.

        Returns:
            How long to wait at most if it stands in line already, 0 if it should ask now; what was told meanwhile.
        """
        with self._mutex:
            self.bells[id] = bell
            news = self._news.pop(id, None)
            if news is not None:
                self.bells.pop(id, None)
            patience = self._patience.pop(id, 0.0)
            if id in self._rung:
                self._rung.discard(id)
                patience = 0.0
            return patience, news

    def tell(self, id: str, fence: int) -> None:
        """Tell a claim that it holds the lock with `fence`; with 0, that it should look."""
        with self._mutex:
            if fence:
                self._promoted(id, fence)
            elif self.bells.get(id) is not None:
                self.bells[id].tell(None)

    def _promoted(self, id: str, fence: int) -> None:
        """Tell a claim that waits for it that it holds the lock."""
        self._heirs.holds(id)
        if id not in self.bells or id in self._news:
            return
        bell = self.bells[id]
        if bell is None:
            self._news[id] = Told(id, fence)
        else:
            bell.tell(Told(id, fence))
            self.bells.pop(id, None)  # it waits no longer

    def follow(self, before: str, id: str, fence: int) -> None:
        """Keep that a claim, if it still waits, holds the lock with `fence` as soon as the one before it has left."""
        with self._mutex:
            if id in self.bells and id not in self._news:
                self._heirs.follow(before, id, fence)

    def tell_all(self, parser: Parser) -> None:
        """Tell what was heard on the channel."""
        while (message := parser.next()) is not MISSING:
            if isinstance(message, list) and message[0] == b"message":
                id, _, fence = message[2].decode(errors="replace").partition(" ")
                if fence.isdecimal():  # else it is not from us
                    self.tell(id, int(fence))

    def holds(self, id: str) -> None:
        """The claim waits no longer: it holds the lock."""
        if id in self.bells:
            with self._mutex:
                self._heirs.holds(id)
                self._drop(id)

    def withdraw(self, id: str) -> None:
        """The claim leaves that waited, or was told and did not come to work: its heir follows the one before it."""
        with self._mutex:
            self._heirs.withdraws(id)
            self._drop(id)

    def pass_on(self, id: str) -> Heir | None:
        """The claim leaves that held the lock: its heir does now, and is told so.

        Only the release of a grant may call this: whoever waits and leaves has nothing to pass on.

        Returns:
            The heir, if there is one.
        """
        with self._mutex:
            self._drop(id)
            heir = self._heirs.leaves(id)
            if heir is not None:
                self._promoted(*heir)
        return heir

    def is_void(self, removed: bool) -> bool:
        """Tell, from the answer to a leave, whether the promise to an heir may be void.

        Args:
            removed: whether the server still had the claim that let the heir in.
        """
        return not removed

    def _drop(self, id: str) -> None:
        self.bells.pop(id, None)
        self._news.pop(id, None)
        self._patience.pop(id, None)
        self._rung.discard(id)

    def ring_all(self) -> None:
        """Let everybody look, those too who have no bell yet."""
        for id, bell in list(self.bells.items()):
            if bell is not None:
                bell.tell(None)
            else:
                self._rung.add(id)

    @property
    def ids(self) -> list[str]:
        """The claims that wait."""
        return list(self.bells)
