"""The claims of this process that hold the lock next, by the server's word, once the claim before them has left.

The server names successors: a waiter that stands right behind a holder or behind another successor, where all want
the lock for themselves, has its fence already, and nobody can come between the two. So a released claim hands over to
its successor at once, and the server is told while the successor works already. For the server the released claim
holds the lock until then, or until its lease ends; after it comes the successor in either case, and nobody else as
long as the successor's own lease lasts.
"""


class Handoff:
    """Each claim's successor: a chain for each line. All claims of a chain wait, but for the first one."""

    def __init__(self) -> None:
        self.after: dict[str, tuple[str, int]] = {}
        self.before: dict[str, str] = {}

    def follow(self, before: str, id: str, fence: int) -> None:
        """Note that the waiting claim `id` is the successor of `before`, with `fence`; a former successor is gone."""
        self.holds(id)
        former = self.after.get(before)
        if former is not None:
            self.before.pop(former[0], None)
        self.after[before] = (id, fence)
        self.before[id] = before

    def holds(self, id: str) -> None:
        """Note that a claim holds the lock, or is gone: it is nobody's successor any more, and may have one."""
        before = self.before.pop(id, None)
        if before is not None:
            self.after.pop(before, None)

    def leaves(self, id: str) -> tuple[str, int] | None:
        """Note that a claim that held the lock leaves; return its successor and the fence."""
        self.holds(id)
        successor = self.after.pop(id, None)
        if successor is not None:
            self.before.pop(successor[0], None)
        return successor

    def withdraws(self, id: str) -> None:
        """Note that a waiting claim leaves: its successor becomes that of the claim before it."""
        before = self.before.get(id)
        successor = self.leaves(id)
        if before is not None and successor is not None:
            self.follow(before, *successor)
