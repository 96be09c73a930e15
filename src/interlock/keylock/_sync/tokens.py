# Generated from _async/tokens.py by tools/unasync.py; change that one.
"""What the locks do whose key holds a random token: acquire, wait, release, renew.

A token whose fate is unknown stays in `_unsettled` until the server has told it, and a holding is forgotten only when
the server has answered. What is unsettled is dropped before anything else is asked.
"""

from contextlib import suppress
from functools import partial
from typing import Any

from interlock.core.errors import StoreError, UnknownOutcome
from interlock.keylock._sync.onekey import PATIENCE, OneKey, or_undo
from interlock.keylock.arguments import checked_flag, milliseconds
from interlock.keylock.clients import Sent
from interlock.keylock.holdings import Attempt, Holding, Holdings
from interlock.runtime import _threads as rt
from interlock.runtime import clock, log
from interlock.runtime.process import checked_pid


class TokenLock(OneKey):
    """The steps of a lock by token.

    Args:
        client: what has `execute_command`.
        key: the key of the lock.
        shared: True if threads and tasks are not told apart.
    """

    def __init__(self, client: Any, key: str | bytes, shared: bool) -> None:
        super().__init__(client, key)
        self._shared = checked_flag(shared, "shared")
        self._holdings = Holdings()
        self._unsettled: dict[bytes, None] = {}
        self._bodies: list[tuple[object, Holding]] = []
        self._mutex = rt.Mutex()

    def _inherits(self, owner: object) -> bool:
        """Tell whether the caller may release what `owner` holds."""
        return False

    def _caller(self) -> object:
        """Return the calling thread or task; None outside of any, as where a lock is used before the loop runs."""
        try:
            return rt.caller()
        except RuntimeError:
            return None

    def _owner(self) -> object:
        """Return who may speak for what the caller acquires: the caller, or anybody (None)."""
        return None if self._shared else self._caller()

    def _held_by(self, owner: object) -> Holding | None:
        return self._holdings.find(owner, self._encoded_key, self._inherits)

    def _mine(self) -> Holding | None:
        return self._held_by(self._owner())

    def _obtain(self, attempt: Attempt) -> bool:
        return or_undo(self._undo, self._wait, attempt)

    def _wait(self, attempt: Attempt) -> bool:
        """Try until it is obtained or the time is over; the last try is at the end of the time."""
        end = None if attempt.seconds is None else clock.now() + attempt.seconds
        while not rt.finish_within(PATIENCE, self._try, attempt):
            left = None if end is None else end - clock.now()
            if left is not None and left <= 0:
                return False
            pause = next(attempt.pauses)
            rt.sleep(pause if left is None else min(pause, left))
        return True

    def _try(self, attempt: Attempt) -> bool:
        """Try once; whatever happens, nothing is left in the server that this object does not know of."""
        self._settle(self._held_by(attempt.owner))
        token, sent = attempt.token or rt.fresh_id().encode(), Sent()
        deadline = None if attempt.ttl is None else clock.awake_or_not() + attempt.ttl
        try:
            taken = self._take(token, milliseconds(attempt.ttl), None if attempt.token else sent)
        except BaseException as error:  # an interrupt or a cancellation, too, perhaps after the command was sent
            refused = isinstance(error, StoreError) and not isinstance(error, UnknownOutcome) and not sent.again
            if not refused and attempt.token is None:
                self._unsettled[token] = None
            raise
        holding = Holding(self._encoded_key, token, deadline, attempt.owner)
        if taken and holding.alive:
            attempt.holding = holding
            self._holdings.add(holding)
        elif taken:  # the reply took longer than the lease
            self._unsettled[token] = None
            with suppress(Exception):  # the next step of this lock tries again
                self._settle(None)
        return attempt.holding is not None

    def _settle(self, mine: Holding | None) -> None:
        """Finish what has an unknown outcome: the release of what the caller holds, and acquisitions that failed."""
        if mine is not None and mine.left is not None:
            self._leave(mine)
        for token in self._unsettled.copy():
            self._drop(token, Sent())
            self._unsettled.pop(token, None)

    def _undo(self, attempt: Attempt) -> None:
        """Undo an acquire that was interrupted, perhaps after it succeeded."""
        if attempt.holding is not None:
            self._leave(attempt.holding)
        self._settle(None)

    def _release(self, holding: Holding) -> bool:
        """Release, though the caller is cancelled or interrupted; return False if it was lost before."""
        return or_undo(self._settle, partial(rt.finish_within, PATIENCE, self._leave), holding)

    def _leave(self, holding: Holding) -> bool:
        sent, in_time = Sent(), holding.alive if holding.left is None else holding.left
        try:
            dropped = self._drop(holding.token, sent)
        except BaseException as error:
            if sent.again or isinstance(error, UnknownOutcome) or not isinstance(error, Exception):
                holding.left = in_time
            raise
        self._holdings.remove(holding)
        # Else an earlier release, whose reply was lost, did it: there was nothing left to drop.
        released = dropped or ((sent.again or holding.left is not None) and in_time)
        holding.over, holding.lost = True, holding.lost or not released
        return released

    def _renew(self, holding: Holding, ttl: float, lengthen: bool = False) -> bool:
        """Let the lease end `ttl` seconds from now, or `ttl` seconds later than it would."""
        begin = holding.deadline if lengthen and holding.deadline is not None else clock.awake_or_not()
        how = self._lengthen if lengthen else self._extend
        holding.lost = not how(holding.token, milliseconds(ttl))
        if not holding.lost:
            holding.deadline = begin + ttl
        return holding.alive

    def _is_held(self, mine: Holding | None) -> bool:
        return mine is not None and self._holder() == mine.token

    def _end_body(self) -> Holding | None:
        """Return what the body that ends was entered with; None in a forked child, whose parent entered it."""
        me, here = self._caller(), checked_pid()
        with self._mutex:
            # If none is the caller's, it was entered in another thread or task, as fixtures do.
            entered = sorted((each for each in self._bodies if each[1].pid == here), key=lambda each: each[0] is me)
            if entered:
                self._bodies.remove(entered[-1])
        return entered[-1][1] if entered else None

    def _note(self, error: BaseException, failure: Exception) -> None:
        """Keep a failure at the end of a body that failed itself: its own error is what the caller is to hear of."""
        error.add_note(f"{type(failure).__name__}: {failure}")
        log.warn("the lock %r could not be released when its body failed: %s", self._key, failure)
