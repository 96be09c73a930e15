"""redis:// - locks on a Redis or Valkey server, for threads."""

from typing import Any

from interlock.claims import Check, Claim
from interlock.engine import run
from interlock.errors import StoreError
from interlock.protocols.queue import Turn
from interlock.stores.redis.checks import examine
from interlock.stores.redis.ears import ThreadEar
from interlock.stores.redis.message import Broken, Message
from interlock.stores.redis.queue import RedisQueue
from interlock.stores.redis.resp import ended_by


class RedisStore(RedisQueue):
    """A store on a Redis server, for threads."""

    def enter_now(self, claim: Claim, wakeup: Any, wait: bool, again: bool) -> Turn:
        """As `enter`, without a generator around it."""
        try:
            start, line = self._enter_of(claim.terms, claim.who, self._mode(claim, wakeup, wait, again))
            reply = self._wire.exchange(start, line, claim.id)
        except StoreError as error:
            return self._unclear(claim, error, again)
        if type(reply) is int and reply > 0 and not self._waits:
            return Turn("using", reply)
        return self._turn(claim, reply, wait)

    def leave_now(self, claim: Claim) -> bool:
        """As `leave`, of a claim that holds the lock, without a generator around it."""
        start, line, _ = self._released(claim)
        try:
            reply = self._wire.exchange(start, line, claim.id)
        except Broken:
            return run(self._leave_again(Message(ended_by(start, claim.id), line, claim.id)))
        except StoreError:
            raise
        except BaseException:
            self._bells.ring_all()
            raise
        return reply == 1 if type(reply) is int else self._left(reply)

    def thread_wakeup(self) -> ThreadEar:
        """Return a wake-up for the calling thread."""
        return ThreadEar(self._ears)

    def task_wakeup(self) -> Any:
        """There is none: a store for threads would block the loop."""
        raise StoreError("this store is for threads: use interlock.aconnect()")

    def close(self) -> None:
        """Close all connections."""
        super().close()
        if self._release is not None:
            self._release()

    def doctor(self) -> list[Check]:
        """As `Store.doctor`."""
        return run(examine(self._wire, self._ears))
