"""redis:// - locks on a Redis or Valkey server, for threads."""

from typing import Any

from interlock._redis.message import Broken, Message, NoAnswer
from interlock._redis.resp import ended_by
from interlock.core.claims import Check, Claim
from interlock.core.errors import StoreError
from interlock.core.queue import Turn
from interlock.runtime.sync import run
from interlock.stores.redis.checks import examine
from interlock.stores.redis.queue import CUTS, REMOVED, RedisQueue
from interlock.stores.redis.rights import examine_rights
from interlock.stores.redis.subscription import ThreadEar


class RedisStore(RedisQueue):
    """A store on a Redis server, for threads."""

    def enter_now(self, claim: Claim, wakeup: Any, wait: bool, again: bool) -> Turn:
        """As `enter`, without a generator around it."""
        try:
            start, line = self._enter_of(claim.terms, claim.who, self._mode(claim, wakeup, wait, again))
            reply = self._wire.exchange(ended_by(start, claim.id), line, claim.id)
        except StoreError as error:
            return self._unclear(claim, error, again, wait)
        if type(reply) is int and reply > 0 and not self._waits:
            self._answered = True
            return Turn("using", reply)
        return self._turn(claim, reply, wait, again)

    def leave_now(self, claim: Claim) -> bool:
        """As `leave`, of a claim that holds the lock, without a generator around it."""
        command, line, heir = self._released(claim)
        try:
            reply = self._wire.exchange(command, line, None)
        except (Broken, NoAnswer) as error:
            times = CUTS if type(error) is Broken else 1
            return run(self._leave_again(Message(command, line), heir, times))
        except BaseException:
            self._left_unheard(heir)
            raise
        return True if reply == REMOVED else run(self._left_all(Message(command, line), reply, heir))

    def thread_wakeup(self) -> ThreadEar:
        """Return a wake-up for the calling thread."""
        return ThreadEar(self._ears)

    def task_wakeup(self) -> Any:
        """There is none: a store for threads would block the loop."""
        raise StoreError("this store is for threads: use interlock.aconnect()")

    def rest(self) -> None:
        """Close the connections that nobody uses, but for one to each server."""
        self._wire.rest()

    def close(self) -> None:
        """Close all connections."""
        super().close()
        if self._release is not None:
            self._release()

    def doctor(self) -> list[Check]:
        """As `Store.doctor`."""
        return [*run(examine(self._wire)), *run(examine_rights(self))]
