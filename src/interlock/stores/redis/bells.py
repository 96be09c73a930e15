"""Who waits in this process, by claim: what is told may come before anybody is ready to hear it."""

import threading
from typing import Any

from interlock.protocols.queue import Told
from interlock.stores.redis.resp import MISSING, Parser


class Bells:
    """The waiting claims of one store."""

    def __init__(self) -> None:
        self.start_afresh()

    def start_afresh(self) -> None:
        """Forget all: a forked child waits for nothing."""
        self._mutex = threading.Lock()
        self.bells: dict[str, Any] = {}
        self._news: dict[str, Told] = {}
        self._patience: dict[str, float] = {}

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
            self.bells[id] = bell
            return self._patience.pop(id, 0.0), self._news.pop(id, None)

    def tell(self, id: str, fence: int) -> None:
        """Tell a claim that it holds the lock with `fence`; with 0, that it should look."""
        with self._mutex:
            if id not in self.bells:
                return
            bell = self.bells[id]
            if bell is None:
                if fence:
                    self._news[id] = Told(id, fence)
                return
        bell.tell(Told(id, fence) if fence else None)

    def tell_all(self, parser: Parser) -> None:
        """Tell what was heard on the channel."""
        while (message := parser.next()) is not MISSING:
            if isinstance(message, list) and message[0] == b"message":
                id, _, fence = message[2].decode().partition(" ")
                self.tell(id, int(fence))

    def forget(self, id: str) -> None:
        """The claim waits no longer."""
        if id in self.bells:
            with self._mutex:
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
