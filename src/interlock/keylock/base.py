"""The steps of a lock that is one key, for both colours.

A token whose fate is unknown stays in `_unsettled` until the server has told it, and a holding is forgotten only when
the server has answered. What is unsettled is dropped before anything else is asked.
"""

from time import monotonic
from typing import Any

from interlock.core.effects import Op, Sleep
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.keylock import commands
from interlock.keylock.arguments import encoded, fresh_token, milliseconds
from interlock.keylock.holdings import Holding, Holdings
from interlock.keylock.server import KeyServer
from interlock.keylock.tries import Tries
from interlock.runtime.process import pid


class KeyAttempt:
    """One call of acquire, and what came of it: known even to a caller that was interrupted.

    Attributes:
        owner: who will hold the lock.
        seconds: how long to wait at most; None for no limit.
        ttl: seconds of lease; None for no limit.
        pauses: seconds between the tries.
        token: chosen by the caller, so that others may use it too; None for random ones.
        holding: what was obtained.
    """

    __slots__ = ("holding", "owner", "pauses", "seconds", "token", "ttl")

    def __init__(
        self, owner: Any, seconds: float | None, ttl: float | None, pauses: Any, token: bytes | None = None
    ) -> None:
        self.owner = owner
        self.seconds = seconds
        self.ttl = ttl
        self.pauses = pauses
        self.token = token
        self.holding: Holding | None = None


class Steps:
    """Acquire, release, renew as generators.

    Args:
        client: what has `execute_command`.
        key: the key of the lock.
        shared: True if threads and tasks are not told apart.
    """

    def __init__(self, client: Any, key: str | bytes, shared: bool) -> None:
        self._key = key
        self._encoded_key = encoded(key, "key")
        self._shared = shared
        self._server = KeyServer(client)
        self._holdings = Holdings()
        self._unsettled: dict[bytes, None] = {}
        self._bodies: dict[tuple[int, Any], list[KeyAttempt]] = {}

    def _owner(self) -> Any:
        """Return the calling thread or task."""
        raise TypeError  # pragma: no cover

    def _inherits(self, owner: Any) -> bool:
        """Tell whether the caller may release what `owner` holds."""
        return False

    def _caller(self) -> Any:
        """Return who may speak for what the caller acquires: the calling thread or task, or anybody (None)."""
        return None if self._shared else self._owner()

    def _mine(self) -> Holding | None:
        """Return what the caller holds."""
        return self._held_by(self._caller())

    def _held_by(self, owner: Any) -> Holding | None:
        return self._holdings.find(owner, self._encoded_key, self._inherits)

    # -- acquire ----------------------------------------------------------------------------------------

    def _attempt(
        self, seconds: float | None, ttl: float | None, pauses: Any, token: bytes | None = None
    ) -> KeyAttempt:
        return KeyAttempt(self._caller(), seconds, ttl, pauses, token)

    def _acquiring(self, attempt: KeyAttempt) -> Op[bool]:
        """Try until it is obtained or the time is over; the last try is at the end of the time."""
        end = None if attempt.seconds is None else monotonic() + attempt.seconds
        yield from self._settling(self._held_by(attempt.owner))
        while not (yield from self._trying(attempt)):
            left = None if end is None else end - monotonic()
            if left is not None and left <= 0:
                return False
            pause = next(attempt.pauses)
            yield Sleep(pause if left is None else min(pause, left))
        return True

    def _trying(self, attempt: KeyAttempt) -> Op[bool]:
        """Try once; whatever happens, nothing is left in the server that this object does not know of."""
        token = attempt.token or fresh_token()
        tries, taken = Tries(), False
        sent = monotonic()
        limit = None if attempt.ttl is None else milliseconds(attempt.ttl)
        try:
            taken = yield from commands.asked_again(
                lambda: commands.take(self._server, self._key, token, limit, attempt.token is None, tries), tries
            )
            if not taken:
                return False
            deadline = None if attempt.ttl is None else sent + attempt.ttl
            holding = Holding(self._encoded_key, token, deadline, attempt.owner)
            if holding.alive:
                attempt.holding = holding
                self._holdings.add(holding)
                return True
        except BaseException as error:  # an interrupt or a cancellation, too, perhaps after the command was sent
            refused = isinstance(error, StoreError) and not isinstance(error, UnknownOutcome) and not tries.again
            if attempt.holding is None and not refused and (taken or attempt.token is None):
                self._unsettled[token] = None
            raise
        self._unsettled[token] = None  # the reply took longer than the lease
        yield from self._settling_quietly()
        return False

    def _settling(self, mine: Holding | None) -> Op[None]:
        """Finish what has an unknown outcome: the release of what the caller holds, and acquisitions that failed."""
        if mine is not None and mine.unsure:
            yield from self._leaving(mine)
        for token in self._unsettled.copy():
            yield from commands.drop(self._server, self._key, token)
            self._unsettled.pop(token, None)

    def _settling_quietly(self) -> Op[None]:
        """Settle, where the caller is to hear of something else; the next step of this lock tries again."""
        try:
            yield from self._settling(None)
        except Exception:
            pass

    def _undoing(self, attempt: KeyAttempt) -> Op[None]:
        """Undo an acquire that was interrupted, perhaps after it succeeded."""
        if attempt.holding is not None:
            yield from self._leaving(attempt.holding)
        yield from self._settling_quietly()

    # -- release, renew ---------------------------------------------------------------------------------

    def _leaving(self, holding: Holding) -> Op[bool]:
        """Release; return True if that ended it, False if it was lost before."""
        if not holding.unsure:
            holding.left_in_time = holding.alive
        tries = Tries()
        try:
            dropped = yield from commands.asked_again(
                lambda: commands.drop(self._server, self._key, holding.token, tries), tries
            )
            self._holdings.remove(holding)
        except BaseException as error:
            unknown = tries.again or isinstance(error, UnknownOutcome) or not isinstance(error, Exception)
            holding.unsure = holding.unsure or unknown
            raise
        # Else an earlier release, whose reply was lost, did it: there was nothing left to drop.
        released = dropped or ((tries.again or holding.unsure) and holding.left_in_time)
        holding.over, holding.lost = True, holding.lost or not released
        return released

    def _renewing(self, holding: Holding, ttl: float, lengthen: bool = False) -> Op[bool]:
        """Let the lease end `ttl` seconds from now, or `ttl` seconds later than it would."""
        begin = holding.deadline if lengthen and holding.deadline is not None else monotonic()
        how = commands.lengthen if lengthen else commands.extend
        kept = yield from commands.asked_again(lambda: how(self._server, self._key, holding.token, milliseconds(ttl)))
        if kept:
            holding.deadline = begin + ttl
        else:
            holding.lost = True
        return kept and holding.alive

    def _looking(self) -> Op[bytes | None]:
        return commands.holder(self._server, self._key)

    # -- with -------------------------------------------------------------------------------------------

    def _enter_body(self, attempt: KeyAttempt) -> None:
        self._bodies.setdefault((pid(), self._owner()), []).append(attempt)

    def _exiting(self, body: list[KeyAttempt | None]) -> Op[Holding | None]:
        """Release what the body that ends was entered with.

        Args:
            body: empty; give it again to finish what an interrupt broke off.

        Returns:
            What the body held; None in a forked child, whose body its parent entered.
        """
        self._leave_body(body)
        entered = body[0] if body else None
        holding = None if entered is None else entered.holding
        if holding is not None and len(body) == 1:
            if not holding.over:
                yield from self._leaving(holding)
            body.append(None)
        return holding

    def _leave_body(self, body: list[KeyAttempt | None]) -> None:
        entrant: tuple[int, Any] | None = (pid(), self._owner())
        if entrant not in self._bodies:  # entered in another thread or task, as fixtures do
            entrant = next((each for each in self._bodies.copy() if each[0] == pid()), None)
        entered = self._bodies.get(entrant) if entrant is not None else None
        if not entered or entrant is None:
            return
        if not body:
            body.append(entered[-1])
        if entered[-1] is body[0]:
            entered.pop()
        if not entered:
            self._bodies.pop(entrant, None)
