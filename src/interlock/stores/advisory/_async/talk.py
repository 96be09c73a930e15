"""The requests on a session, for tasks: the same for PostgreSQL and MariaDB, with the statements of each."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Generic, TypeVar

from interlock.core.errors import StoreError
from interlock.remote.failures import Refused
from interlock.runtime import _aio as rt
from interlock.stores.advisory.session import IO_TIMEOUT, BaseSession, Rows

S = TypeVar("S", bound=BaseSession)


class AsyncTalk(ABC, Generic[S]):
    """The requests on the sessions of one kind of server.

    Attributes:
        words: the statements of that server.
    """

    words: Mapping[str, str]

    async def open(self, session: S) -> None:
        """Connect a new session, and check that the server is usable for advisory locks.

        Raises:
            StoreError: the server can't be reached, or its locks do not exclude all clients.
        """
        await rt.offload(session.connect)
        await self.prepare(session)

    @abstractmethod
    async def prepare(self, session: S) -> None:
        """Set up a session that was connected just now."""

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

    async def attempt(self, session: S, key: int, kind: str) -> str | None:
        """Take the lock if it is free; return the fence, or None."""
        ((fence,),) = await self.say(session, "attempt", key, kind)
        return fence

    async def wait(self, session: S, key: int, kind: str) -> str | None:
        """Wait for the lock; return the fence, or None if the wait was cancelled: the session may hold the lock."""
        try:
            ((fence,),) = await self.say(session, "wait", key, kind, seconds=None)
            if fence == "apart":
                ((fence,),) = await self.say(session, "fence")
        except Refused:
            return None
        return fence

    async def give_back(self, session: S, key: int) -> None:
        """Release the lock of a session, after the reply that is still due was read."""
        try:
            await self.say(session, "give back", key)
        except Refused:  # a cancel that was meant for the wait came late, and hit the release
            await self.say(session, "give back", key)
