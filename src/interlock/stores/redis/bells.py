"""Who waits in this process, by claim: what is told may come before anybody is ready to hear it."""

import threading
from typing import Any

from interlock.protocols.queue import Told
from interlock.stores.redis.heirs import Heirs
from interlock.stores.redis.resp import MISSING, Parser


class Bells:
    """The waiting claims of one store, and who of them comes after whom."""

    def __init__(self) -> None:
        self.start_afresh()

    def start_afresh(self) -> None:
        """Forget all: a forked child waits for nothing."""
        self._mutex = threading.Lock()
        self.bells: dict[str, Any] = {}
        self._news: dict[str, Told] = {}
        self._patience: dict[str, float] = {}
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
            How long it should wait at most, if it stands in line already, else 0; and what was told meanwhile.
        """
        with self._mutex:
            news = self._news.pop(id, None)
            if news is None:
                self.bells[id] = bell
            else:
                self.bells.pop(id, None)
            return self._patience.pop(id, 0.0), news

    def tell(self, id: str, fence: int) -> None:
        """Tell a claim that it holds the lock with `fence`; with 0, that it should look."""
        with self._mutex:
            bell = self._promoted(id, fence) if fence else self.bells.get(id)
        if bell is not None:
            bell.tell(Told(id, fence) if fence else None)

    def _promoted(self, id: str, fence: int) -> Any:
        """Note that a claim holds the lock; return its bell if it waits for that."""
        self._heirs.holds(id)
        if id not in self.bells or id in self._news:
            return None
        bell = self.bells[id]
        if bell is None:
            self._news[id] = Told(id, fence)
        else:
            del self.bells[id]  # it waits no longer
        return bell

    def follow(self, before: str, id: str, fence: int) -> None:
        """Keep that a waiting claim holds the lock, with `fence`, as soon as the claim before it has left."""
        with self._mutex:
            if id in self.bells and id not in self._news:
                self._heirs.follow(before, id, fence)

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

    def leave(self, id: str) -> bool:
        """The claim goes: if it waited, it waits no longer; if it held the lock, its heir does now, and is told so.

        Returns:
            True if there was such an heir.
        """
        with self._mutex:
            if id in self.bells and id not in self._news:
                self._heirs.withdraws(id)
                self._drop(id)
                return False
            self._drop(id)
            heir = self._heirs.leaves(id)
            bell = None if heir is None else self._promoted(*heir)
        if bell is not None and heir is not None:
            bell.tell(Told(*heir))
        return heir is not None

    def _drop(self, id: str) -> None:
        self.bells.pop(id, None)
        self._news.pop(id, None)
        self._patience.pop(id, None)

    def ring_all(self) -> None:
        """Let everybody look."""
        for bell in list(self.bells.values()):
            if bell is not None:
                bell.tell(None)

    @property
    def ids(self) -> list[str]:
        """The claims that wait."""
        return list(self.bells)
