"""Who waits in this process, by claim: what is told may come before anybody is ready to hear it."""

import threading
from typing import Any

from interlock.protocols.queue import Told
from interlock.stores.redis.heirs import Heirs
from interlock.stores.redis.resp import MISSING, Parser

MOST_ABROAD = 256  # heirs in other processes that are kept; the claims before them may have left long ago
Heir = tuple[str, int, bytes]
"""Who comes next: its claim, its fence, and where its process hears; empty if that is this one."""


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
        self._abroad: dict[str, Heir] = {}

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

    def follow(self, before: str, id: str, fence: int) -> bool:
        """Keep that a waiting claim holds the lock, with `fence`, as soon as the claim before it has left.

        Returns:
            False if it waits no longer.
        """
        with self._mutex:
            if id in self.bells and id not in self._news:
                self._heirs.follow(before, id, fence)
                return True
        return False

    def keep(self, before: str, heir: Heir) -> None:
        """Keep the heir of a claim of this process that waits in another one."""
        with self._mutex:
            self._abroad.pop(before, None)  # the last one to come is the last one to be forgotten
            self._abroad[before] = heir
            if len(self._abroad) > MOST_ABROAD:
                self._abroad.pop(next(iter(self._abroad)))

    def let_in(self, id: str, fence: int) -> None:
        """The claim before has left, in another process: its heir holds the lock, if it still is one."""
        with self._mutex:
            if self._heirs.after.get(self._heirs.before.get(id, "")) == (id, fence):
                self._promoted(id, fence)

    def tell_all(self, parser: Parser) -> None:
        """Tell what was heard on the channel."""
        while (message := parser.next()) is not MISSING:
            if isinstance(message, list) and message[0] == b"message":
                id, _, fence = message[2].decode().partition(" ")
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
            self._abroad.pop(id, None)
            self._drop(id)

    def pass_on(self, id: str) -> Heir | None:
        """The claim leaves that held the lock: its heir does now; one of this process is told so.

        Only the release of a grant may call this: whoever waits and leaves has nothing to pass on.

        Returns:
            The heir, if there is one; one in another process is still to be told.
        """
        with self._mutex:
            self._drop(id)
            heir = self._heirs.leaves(id)
            abroad = self._abroad.pop(id, None)
            if heir is not None:
                self._promoted(*heir)
                return *heir, b""
        return abroad

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
