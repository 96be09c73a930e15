"""Who holds the lock next in this process, by the server's word, once the claim before it has left.

The server names heirs: a waiter that stands right behind a holder or behind another heir of the same process, where
all want the lock for themselves, has its fence already, and nobody can come between the two. So who leaves lets its
heir in at once, and the server is told while the heir works already. For the server the one that left holds the lock
until then, or until its lease ends; after it comes the heir in either case, and nobody else as long as the heir's own
lease lasts.
"""


class Heirs:
    """Who comes after whom; a chain for each line, of claims that wait, but for its first one."""

    def __init__(self) -> None:
        self._after: dict[str, tuple[str, int]] = {}
        self._before: dict[str, str] = {}

    def follow(self, before: str, id: str, fence: int) -> None:
        """Note that the waiting claim `id` is the heir of `before`, with `fence`."""
        self._after[before] = (id, fence)
        self._before[id] = before

    def holds(self, id: str) -> None:
        """Note that a claim holds the lock: it is nobody's heir any more, and may have one."""
        before = self._before.pop(id, None)
        if before is not None:
            del self._after[before]

    def leaves(self, id: str) -> tuple[str, int] | None:
        """Note that a claim that held the lock leaves; return its heir and the fence."""
        heir = self._after.pop(id, None)
        if heir is not None:
            del self._before[heir[0]]
        return heir

    def withdraws(self, id: str) -> None:
        """Note that a waiting claim leaves: its heir becomes that of the one before it."""
        heir = self.leaves(id)
        before = self._before.pop(id, None)
        if before is not None:
            del self._after[before]
            if heir is not None:
                self.follow(before, *heir)
