# Generated from _async/onekey.py by tools/unasync.py; change that one.
"""One key and its steps: `SET … NX`, and scripts that compare the token.

Source of the scripts: https://redis.io/docs/latest/commands/set/.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from interlock.core.claims import checked_flag
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.keylock.arguments import checked_bytes, checked_client, milliseconds
from interlock.keylock.clients import (
    Attempt,
    CommandName,
    Holding,
    Holdings,
    LostReply,
    Sent,
    as_bytes,
    translated,
)
from interlock.runtime import _threads as rt
from interlock.runtime import clock, log
from interlock.runtime.blocks import Acquired
from interlock.runtime.process import checked_pid

T = TypeVar("T")

PATIENCE = 5.0
"""Seconds for which a cancelled request still waits for its reply."""

DROP = """\
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0"""
EXTEND = """\
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 0"""
LENGTHEN = """\
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local left = redis.call('PTTL', KEYS[1])
if left < 0 then return 0 end
return redis.call('PEXPIRE', KEYS[1], left + ARGV[2])"""


def or_undo(undo: Callable[..., rt.Result[object]], function: Callable[..., rt.Result[T]], *args: object) -> T:
    """Call a function; after a cancellation or interrupt, call `undo` before raising it."""
    try:
        return function(*args)
    except (Exception, GeneratorExit):
        raise
    except BaseException:
        with suppress(Exception):  # the caller must receive the interrupt
            rt.finish(rt.within, PATIENCE, undo, *args)
        raise


class OneKey:
    """A key of Redis or Valkey that is a lock, and the steps on it.

    Args:
        client: an object with `execute_command`.
        key: the key.
        shared: True if threads and tasks are not distinguished.

    Raises:
        InvalidArgument: an argument has a wrong type.
    """

    def __init__(self, client: object, key: str | bytes, shared: bool) -> None:
        self._client = checked_client(client, rt.IS_ASYNC)
        self._key = key
        self._encoded_key = checked_bytes(key, "key", " Name the resource, e.g. 'lock:book:1'.")
        self._shared = checked_flag(shared, "shared")
        self._holdings = Holdings()
        self._unsettled: dict[bytes, None] = {}
        self._acquired = Acquired()

    @property
    def key(self) -> str | bytes:
        """The key of the lock."""
        return self._key

    def locked(self) -> bool:
        """Ask the server whether the lock is held.

        Raises:
            StoreError: the server is unreachable or refuses.
        """
        return self._holder() is not None

    def _holder(self) -> bytes | None:
        found = self._ask("GET", self._key)
        return None if found is None else as_bytes(found)

    def _take(self, token: bytes, ms: int | None, sent: Sent | None = None) -> bool:
        """Set the key to `token` if the key does not exist.

        Args:
            token: the new value.
            ms: milliseconds until the key expires; None for never.
            sent: notes whether the command was sent again.  With it, no other caller ever writes this token: a key
                with the token was written by this step, whose reply was lost before the client retried.

        Returns:
            True if the caller holds the key now.
        """
        words = ("SET", self._key, token, "NX", *(() if ms is None else ("PX", ms)))
        if self._ask(*words, sent=sent) is not None:
            return True
        return sent is not None and sent.again and self._holder() == token

    def _drop(self, token: bytes, sent: Sent) -> bool:
        """Delete the key if its value is `token`; return whether the last attempt deleted it."""
        return bool(self._ask("EVAL", DROP, 1, self._key, token, sent=sent))

    def _ask(self, *words: object, sent: Sent | None = None) -> object:
        """Send one command, again after a lost reply; translate the client's errors.

        Args:
            words: the command.
            sent: notes whether the command was sent again; None to forbid retries beyond the client's own.
        """
        name = CommandName(words[0])
        try:
            return self._client.execute_command(name, *words[1:], NEVER_DECODE=True)  # always bytes
        except Exception as error:
            failure = translated(error, name, self._key)
            if failure is None:
                raise
            # If the command was never sent, the connection failed, and the client has already retried.
            if not isinstance(failure, LostReply) or sent is None or sent.again or name.times != 1:
                raise failure from error
            sent.again = True
        finally:
            if sent is not None:
                sent.again = sent.again or name.times > 1
        return self._ask(*words, sent=sent)

    def _inherits(self, owner: object) -> bool:
        """Return True if the caller may release the holding of `owner`."""
        return False

    def _caller(self) -> object:
        """Return the calling thread; None outside of any, such as before the loop runs."""
        try:
            return rt.caller()
        except RuntimeError:
            return None

    def _owner(self) -> object:
        """Return the owner of a new acquisition: the caller, or None for all."""
        return None if self._shared else self._caller()

    def _held_by(self, owner: object) -> Holding | None:
        return self._holdings.find(owner, self._encoded_key, self._inherits)

    def _mine(self) -> Holding | None:
        return self._held_by(self._owner())

    def _obtain(self, attempt: Attempt) -> bool:
        return or_undo(self._undo, self._wait, attempt)

    def _wait(self, attempt: Attempt) -> bool:
        """Try until success or the deadline; the last try is at the deadline."""
        end = None if attempt.seconds is None else clock.now() + attempt.seconds
        while not rt.finish_within(PATIENCE, self._try, attempt):
            left = None if end is None else end - clock.now()
            if left is not None and left <= 0:
                return False
            pause = next(attempt.pauses)
            rt.sleep(pause if left is None else min(pause, left))
        if attempt.site is not None or self._acquired:
            self._acquired.note(attempt.site, attempt, attempt.caller)
        return True

    def _try(self, attempt: Attempt) -> bool:
        """Try once; on failure, leave nothing unknown on the server."""
        self._settle(self._held_by(attempt.owner))
        token, sent = attempt.token or rt.fresh_id().encode(), Sent()
        deadline = None if attempt.ttl is None else clock.awake_or_not() + attempt.ttl
        try:
            taken = self._take(token, milliseconds(attempt.ttl), None if attempt.token else sent)
        except BaseException as error:  # also an interrupt or a cancellation, perhaps after the command was sent
            refused = isinstance(error, StoreError) and not isinstance(error, UnknownOutcome) and not sent.again
            if not refused and attempt.token is None:
                self._unsettled[token] = None
            raise
        holding = Holding(self._encoded_key, token, deadline, attempt.owner)
        if taken and holding.alive:
            attempt.holding = holding
            holding.handles.append(attempt)
            self._holdings.add(holding)
        elif taken:  # the reply took longer than the lease
            self._unsettled[token] = None
            with suppress(Exception):  # the next step of this lock tries again
                self._settle(None)
        return attempt.holding is not None

    def _settle(self, mine: Holding | None) -> None:
        """Resolve unknown outcomes: an unanswered release, and failed acquisitions."""
        if mine is not None and mine.left is not None:
            self._leave(mine)
        for token in self._unsettled.copy():
            self._drop(token, Sent())
            self._unsettled.pop(token, None)

    def _undo(self, attempt: Attempt) -> None:
        """Undo an acquire that was interrupted, perhaps after it succeeded."""
        self._acquired.drop(attempt)
        if attempt.holding is not None:
            self._leave(attempt.holding)
        self._settle(None)

    def _release(self, holding: Holding) -> bool:
        """Release despite a cancellation or interrupt; return False if the lock was lost."""
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
        # Otherwise an earlier release without a reply deleted the key.
        released = dropped or ((sent.again or holding.left is not None) and in_time)
        holding.over, holding.lost = True, holding.lost or not released
        return released

    def _renew(self, holding: Holding, ttl: float, lengthen: bool = False) -> bool:
        """Set the end of the lease to `ttl` seconds from now, or extend it by `ttl` seconds."""
        begin = holding.deadline if lengthen and holding.deadline is not None else clock.awake_or_not()
        words = "EVAL", LENGTHEN if lengthen else EXTEND, 1, self._key, holding.token, milliseconds(ttl)
        holding.lost = not self._ask(*words, sent=Sent())
        if not holding.lost:
            holding.deadline = begin + ttl
        return holding.alive

    def _is_held(self, mine: Holding | None) -> bool:
        return mine is not None and self._holder() == mine.token

    def _left(self, ended: Sequence[Attempt]) -> Holding | None:
        """Return the unreleased holding of a block, for `release`; None in a forked child of its process."""
        for each in ended:
            if each.holding is not None and not each._over and each.holding.pid == checked_pid():
                each.holding.handles.remove(each)
                each.holding.handles.append(each)  # `release` takes the last handle
                return each.holding
        return None

    def _note(self, error: BaseException, failure: Exception) -> None:
        """Log a failed release after a failed body, whose own error the caller must receive."""
        error.add_note(f"{type(failure).__name__}: {failure}")
        log.warn("Could not release lock %r after its body failed: %s", self._key, failure)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._key!r}>"
