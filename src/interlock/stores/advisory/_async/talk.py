"""The requests on a session, for tasks: the same for PostgreSQL and MariaDB, with the statements of each."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Generic, TypeVar

from interlock.core.errors import StoreError
from interlock.remote.failures import Refused
from interlock.stores.advisory.session import IO_TIMEOUT, BaseSession, Rows

S = TypeVar("S", bound=BaseSession)


class AsyncTalk(ABC, Generic[S]):
    """The requests on the sessions of one kind of server.

    Attributes:
        words: the statements of that server.
    """

    words: Mapping[str, str]

    @abstractmethod
    async def prepare(self, session: S) -> None:
        """Set up a session that was connected just now, and check that the server is usable for advisory locks.

        Raises:
            StoreError: its locks do not exclude all clients, or it refuses.
        """

    async def make_sequence(self, session: S, start: object) -> None:
        """Create the sequence of the fences.

        Args:
            session: the session to use.
            start: the first fence: the clock in microseconds, as a session that has leapt on a sequence which was
                dropped since does not leap on this one.

        Raises:
            StoreError: the role may not do that.
        """
        sequence = session.options.sequence
        make = f"CREATE SEQUENCE IF NOT EXISTS {sequence} START WITH {start}"
        try:
            await self.rows(session, self.words["make"] + make)
        except Refused as error:
            raise StoreError(
                f"there is no sequence for the fences, and it can't be made ({error}); let an owner of the schema do "
                f"it: {make}; {self.words['allow'].format(sequence=sequence)}"
            ) from error

    @abstractmethod
    async def rows(self, session: S, text: str, seconds: float | None = IO_TIMEOUT) -> Rows:
        """Perform a statement, and return the rows.

        Args:
            session: the session to use.
            text: the statement.
            seconds: to wait for the reply; None for no limit.

        Raises:
            Refused: the server refuses.
            UnknownOutcome: the connection failed, or no answer came in time.
        """

    async def say(
        self, session: S, word: str, key: int = 0, kind: str = "", pid: int = 0, seconds: float | None = IO_TIMEOUT
    ) -> Rows:
        """Perform a statement of `words`; see `rows`.

        Args:
            session: the session to use.
            word: the key of the statement in `words`.
            key: the lock.
            kind: "_shared" for a reader, "" otherwise.
            pid: another session, for a statement that names one.
            seconds: to wait for the reply; None for no limit.
        """
        # Hexadecimal in lower case: MariaDB compares lock names without regard to case.
        name, sequence = f"interlock_{key & (1 << 64) - 1:016x}", session.options.sequence
        return await self.rows(
            session, self.words[word].format(key=key, name=name, kind=kind, sequence=sequence, pid=pid), seconds
        )
