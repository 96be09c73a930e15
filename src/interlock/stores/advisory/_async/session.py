"""What a session is asked, as tasks do it: the same of PostgreSQL and of MariaDB, in their own words."""

from collections.abc import Mapping
from typing import Any

from interlock.core.errors import StoreError
from interlock.stores.advisory.session import IO_TIMEOUT, BaseSession, Refusal, Rows

LONG = 1e9  # seconds that a wait for a lock may take


class AsyncSession(BaseSession):
    """A session of tasks; how it connects and talks is in its subclasses.

    Attributes:
        words: the statements of its server.
    """

    words: Mapping[str, str]

    async def open(self) -> None:
        """Connect, and see that these locks can be kept here.

        Raises:
            StoreError: the server can't be reached, or its locks are not for all.
        """
        try:
            await self._open()
        except Refusal as error:
            raise StoreError(f"the database refuses to be used for locks: {error}") from error

    async def _open(self) -> None:
        raise NotImplementedError

    async def rows(self, text: str, seconds: float = IO_TIMEOUT) -> Rows:
        """Perform a statement, and return the rows.

        Raises:
            Refusal: the server refuses.
            UnknownOutcome: the connection failed, or no answer came in time.
        """
        raise NotImplementedError

    async def say(
        self, word: str, key: int = 0, shared: bool = False, pid: int = 0, seconds: float = IO_TIMEOUT
    ) -> Rows:
        """Perform a statement of its words, as `rows`.

        Args:
            word: which.
            key, shared: the lock.
            pid: of another session.
            seconds: to wait for the answer.
        """
        # In lower case: MariaDB compares names without regard to case.
        name, kind = f"interlock_{key & (1 << 64) - 1:016x}", "_shared" if shared else ""
        text = self.words[word].format(key=key, name=name, shared=kind, sequence=self.options.sequence, pid=pid)
        return await self.rows(text, seconds)

    async def attempt(self, key: int, shared: bool) -> int | None:
        """Take the lock if it is free; return the fence, or None."""
        self.key = key
        ((fence,),) = await self.say("attempt", key, shared)
        return fence if fence is None else int(fence)

    async def wait(self, key: int, shared: bool) -> int | None:
        """Wait for the lock; return the fence, or None if the wait was broken off: the lock may be there even so."""
        self.key = key
        try:
            ((fence,),) = await self.say("wait", key, shared, seconds=LONG)
            if fence == "apart":
                ((fence,),) = await self.say("fence")
        except Refusal:
            return None
        return fence if fence is None else int(fence)

    async def give_back(self, key: int, shared: bool) -> None:
        """Give back what it has, after an answer that came too late was taken."""
        try:
            await self.say("give back", key, shared)
        except Refusal:  # it was broken off itself, too late for the wait
            await self.say("give back", key, shared)

    async def ping(self) -> bool:
        """Tell whether it is still ours; False if a pooler has given it to somebody else."""
        ((found,),) = await self.say("ping")
        return int(str(found)) == self.pid


async def end_on_server(make: Any, room: Any, other: BaseSession) -> None:
    """End a session on the server by a new one, if it has the lock for which it was used last, or waits for it.

    Raises:
        StoreError: the server can't be reached.
        Refusal: it does not do that.
    """
    session = make(room.options, room.mutex)
    try:
        await session.open()
        if str(other.pid) in [row[0] for row in await session.say("look", other.key)]:
            await session.say("kill", pid=other.pid)
    finally:
        session.end()
