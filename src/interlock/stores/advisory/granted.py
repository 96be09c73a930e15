"""What a transaction holds: the grant of a lock that its commit or rollback gives back."""

from typing import Any, NamedTuple

from interlock.core.errors import NotHeld


class TransactionGrant(NamedTuple):
    """A lock that a transaction holds until it ends.

    Attributes:
        name: of the lock.
        fence: the fencing token.
        transaction: of SQLAlchemy, or a savepoint.
    """

    name: str
    fence: int
    transaction: Any

    @property
    def held(self) -> bool:
        """True while the transaction, or the savepoint, in which it was taken is open."""
        return bool(self.transaction.is_active)

    def check(self) -> None:
        """Raise unless it is held.

        Raises:
            NotHeld: the transaction was committed or rolled back.
        """
        if not self.held:
            raise NotHeld(f"the lock {self.name!r} ended with its transaction; take it again in the next one")

    def __repr__(self) -> str:
        return f"<TransactionGrant {self.name!r} {'held' if self.held else 'over'} fence={self.fence}>"
