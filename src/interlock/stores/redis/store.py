"""redis:// - locks on a Redis or Valkey server, for threads."""

from typing import Any

from interlock._redis.message import ConnectionEnded, Message, NoAnswer
from interlock._redis.resp import ended_by
from interlock.core.claims import Check, Claim
from interlock.core.errors import StoreError
from interlock.core.queue import EnterResult
from interlock.runtime.sync import run
from interlock.stores.redis.checks import examine
from interlock.stores.redis.queue import CUTS, REMOVED, RedisQueue
from interlock.stores.redis.readers import ThreadWaiter
from interlock.stores.redis.rights import examine_rights


class RedisStore(RedisQueue):
    """A store on a Redis server, for threads."""

    def enter_now(self, claim: Claim, wakeup: Any, wait: bool, again: bool) -> EnterResult:
        """As `enter`, without a generator around it."""
        try:
            start, line = self._enter_of(claim.spec, claim.who, self._mode(claim, wakeup, wait, again))
            reply = self._pool.exchange(ended_by(start, claim.id), line, claim.id)
        except StoreError as error:
            return self._on_first_error(claim, error, again, wait)
        if type(reply) is int and reply > 0 and not self._waits:
            self._answered = True
            return EnterResult("using", reply)
        return self._result_of(claim, reply, wait, again)

    def leave_now(self, claim: Claim) -> bool:
        """As `leave`, of a claim that holds the lock, without a generator around it."""
        command, line, successor, late = self._released(claim)
        try:
            reply = self._pool.exchange(command, line, None)
        except (ConnectionEnded, NoAnswer) as error:
            times = CUTS if type(error) is ConnectionEnded else 1
            return run(self._leave_again(Message(command, line), successor, times))
        except BaseException:
            self._left_unheard(successor)
            raise
        if reply == REMOVED:
            return True
        removed = run(self._left_all(Message(command, line), reply, successor))
        return self._left_or_late(removed, late)

    def thread_wakeup(self) -> ThreadWaiter:
        """Return a wake-up for the calling thread."""
        return ThreadWaiter(self._subscription.readers)

    def task_wakeup(self) -> Any:
        """There is none: a store for threads would block the loop."""
        raise StoreError("this store is for threads: use interlock.aconnect()")

    def rest(self) -> None:
        """Close the connections that nobody uses, but for one to each server."""
        self._pool.rest()

    def close(self) -> None:
        """Close all connections."""
        super().close()
        if self._release is not None:
            self._release()

    def doctor(self) -> list[Check]:
        """As `Store.doctor`."""
        return [*run(examine(self._pool)), *run(examine_rights(self))]
