"""The work of `interlock run`: hold a lock while a command runs."""

import math
import os
import signal
import threading
import time
from contextlib import closing
from typing import Any, NamedTuple

from interlock import Grant, Lock, LockError, LockLost, Locks, StoreError
from interlock.api._sync.locks import RunOptions
from interlock.cli import called, connect
from interlock.cli.child_process import system
from interlock.cli.command_process import Child, SignalEvent, Signals, WaitBroken
from interlock.cli.exit_codes import BY_SIGNAL, LOCK_LOST, UNAVAILABLE, USAGE, fail, say, store_failed
from interlock.cli.output import announced_wait
from interlock.core.claims import fits
from interlock.runtime import log

HELD_VARIABLE = "INTERLOCK_HELD"
"""The environment variable with the ids of the claims of enclosing runs, innermost last."""
LONGEST_LABEL = 200
TIMED_OUT = 124  # like timeout(1)
MIN_RESTART_DELAY, MAX_RESTART_DELAY = 1.0, 30.0  # seconds until `lead` restarts a command that ended
LASTED = 60.0  # seconds; a command that ran longer has not failed at its start
POLL_INTERVAL = 1.0  # seconds; a safety net, if the end of the command is not notified


class Order(NamedTuple):
    """The arguments of `interlock run`, `once` or `lead`.

    Attributes:
        name: the lock's name.
        command: the words of the command.
        shared, permits, units: the kind of lock; exclusive unless one of the first two is given.
        wait: seconds to wait at most; None for no limit, 0 for one try.
        max_waiters: do not wait if this many others are already waiting; None for no limit.
        conflict: the exit status if the lock could not be acquired.
        ttl: seconds of lease; None for the default.
        grace: seconds from TERM to KILL when the lock is lost.
        at_least: minimum hold time in seconds.
        keep: True to hold the lock until every process of the command has exited.
        store, namespace, label: like the arguments of `connect` and `lock`.
        verbose: True to print each step.
        timeout: seconds after which the command is stopped; None for no limit.
        attach: the token of a hold to take over; None to acquire.
        one_of: "name=a,b" to hold one of several items; None for a lock.
        once: seconds for which the record of a completed run is kept; None to run in any case.
        again: restart the command, after a pause and a new wait for the lock, until a signal arrives.
    """

    name: str
    command: tuple[str, ...]
    wait: float | None
    ttl: float | None
    store: str | None
    namespace: str
    label: str | None
    verbose: bool = False
    shared: bool = False
    permits: int | None = None
    units: int | None = None
    max_waiters: int | None = None
    conflict: int = 1
    grace: float = 5.0
    at_least: float = 0.0
    keep: bool = False
    timeout: float | None = None
    attach: str | None = None
    one_of: str | None = None
    once: float | None = None
    again: bool = False


def waits_for_itself(order: Order, locks: Locks, lock: Any) -> str:
    """Return why a run would wait for its enclosing runs; "" if it would not.

    The claims are identified by their ids, so another store, another namespace or an ended run is never mistaken for
    a holder of this lock.

    Args:
        order: the arguments of the run.
        locks: the connection.
        lock: the lock to acquire; None with a token.

    Raises:
        StoreError: the claims cannot be read.
    """
    around = os.environ.get(HELD_VARIABLE, "").split()
    if not around or order.wait == 0 or order.attach is not None or order.one_of is not None:
        return ""
    line = locks.claims(order.name)
    held = [(view.units, view.capacity) for view in line if view.state == "using" and view.id in around]
    # A claim that must wait for an enclosing run also delays all claims behind it.
    wanted = [(view.units, view.capacity) for view in line if view.state == "pending"]
    if all(fits(units, capacity, held) for units, capacity in (*wanted, (lock._spec.units, lock._spec.capacity))):
        return ""
    return f"{order.name!r} is held by an enclosing interlock run until that run ends."


def run_guarded(order: Order) -> int:
    """Run the command under its lock.

    Returns:
        The exit status.
    """
    path = system.look_up(order.command[0])
    if path is None:
        return fail(
            UNAVAILABLE,
            f"Cannot run {order.command[0]!r}: it was not found, or is not executable. Check the command.",
        )
    _fill_standard_streams()
    with closing(system.open_signals()) as signals:
        pause = MIN_RESTART_DELAY
        while True:
            began = time.monotonic()
            guarded = GuardedRun(order, signals, signals.child(path, order.command, order.keep))
            try:
                status = guarded.run()
            except StoreError as error:
                status = store_failed(error)
            if guarded.ended_by or not order.again:
                return status
            pause = MIN_RESTART_DELAY if time.monotonic() - began > LASTED else min(MAX_RESTART_DELAY, 2 * pause)
            say(f"{order.command[0]!r} ended with {status}; next try for {order.name!r} in about {pause:g} s.")
            try:
                from random import uniform  # loads hash functions

                signals.wait_again()
                signals.sleep(pause * uniform(0.5, 1.0))
            except WaitBroken as signalled:
                return BY_SIGNAL + signalled.number


def _fill_standard_streams() -> None:
    """Keep our files off closed descriptors 0, 1 and 2, so that the command finds these closed."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


class GuardedRun:
    """One run: the lock, the command, and the signals between them.

    Args:
        order: the arguments of the run.
        signals: the signals of this process.
        child: the process of the command, not started yet.

    Attributes:
        ended_by: the signal that ended the wait, or that was forwarded to end the command; 0 if none.
    """

    def __init__(self, order: Order, signals: Signals, child: Child) -> None:
        self._order = order
        self._signals = signals
        self._child = child
        self._name = "the token's lock" if order.attach else repr(order.one_of or order.name)
        self._grant: Grant | None = None  # kept, so that closing the connection can retry the release
        self._lost = self._timed_out = False
        self.ended_by = 0

    def run(self) -> int:
        """Wait for the lock, run the command, release the lock; return the exit status.

        Raises:
            InvalidArgument, StoreError: the client could not request the lock.
        """
        try:
            return self._with_store()
        except WaitBroken as signalled:
            self.ended_by = signalled.number
            self._report(f"No longer waiting for {self._name}: got {signal.Signals(signalled.number).name}.")
            return BY_SIGNAL + signalled.number
        except LockLost as error:
            return fail(LOCK_LOST, str(error))
        finally:
            self._child.discard()
            log.sink = lambda line: None  # what happens after the run is no step of it

    def _with_store(self) -> int:
        # The log of the library is printed only with -v: the library retries, and a loss is always reported.
        log.sink = say if self._order.verbose else lambda line: None
        with self._signals.breaking():
            locks = connect(self._order.store, namespace=self._order.namespace)
        try:
            lock = None if self._order.attach else self._lock(locks)
            with self._signals.breaking():
                deadlock = waits_for_itself(self._order, locks, lock)
            if deadlock and self._order.wait is None:
                return fail(USAGE, f"{deadlock} The inner run would wait forever. Omit it, or give it -n or -w.")
            if deadlock:
                say(deadlock)
            return self._with_lock(locks, lock)
        finally:
            try:
                locks.close()
            except LockError as error:
                say(f"Could not release lock {self._name}; its lease will expire: {error}")

    def _lock(self, locks: Locks) -> object:
        order = self._order
        program = os.fsencode(os.path.basename(order.command[0])).decode(errors="replace")[:LONGEST_LABEL]
        label = program if order.label is None else order.label
        how: RunOptions = {"ttl": order.ttl, "label": label, "on_lost": self._on_lost}
        most = order.max_waiters
        if order.one_of is not None:
            name, _, items = order.one_of.partition("=")
            return locks.one_of(name, items.split(","), max_waiters=most, **how)
        if order.once is not None:
            once = locks.once(order.name, keep=order.once, **how)
            return Lock(once._client, once._spec, once._options)
        if order.permits is not None:
            return locks.semaphore(order.name, order.permits, units=order.units or 1, max_waiters=most, **how)
        if order.shared:
            return locks.rwlock(order.name, max_waiters=most, **how).read()
        return locks.lock(order.name, max_waiters=most, **how)

    def _on_lost(self, grant: Grant) -> None:
        """Queue the loss, in the thread that renews the lease."""
        self._signals.put(SignalEvent("lost"))

    def _with_lock(self, locks: Locks, lock: Any) -> int:
        order = self._order
        started = time.monotonic()
        if order.verbose:
            say(f"Waiting for {self._name} in {called(order.store)}.")
        line = order.one_of.partition("=")[0] if order.one_of else order.name
        with self._signals.breaking(), announced_wait(locks, line, self._name):
            if order.attach is not None:
                grant = locks.attach(order.attach, ttl=order.ttl, on_lost=self._on_lost)
            else:
                grant = lock.acquire(timeout=order.wait)
        obtained = time.monotonic()
        if grant is None and order.once is not None and locks.is_done(order.name):
            self._report(f"{self._name} has already completed.")
            return 0
        if grant is None:
            self._report(self._not_acquired(obtained - started))
            return order.conflict
        self._grant = grant
        self._signals.wait_is_over()
        self._report(f"Acquired {self._name} after {obtained - started:.3f} s, fence {grant.fence}.")
        try:
            status = self._run_command(grant)
            until = obtained + order.at_least
            if not self._lost and not self.ended_by and until > time.monotonic():
                self._report(f"The command ended with {status}; holding {self._name} until --at-least has passed.")
                status = self._hold_on(
                    status, until, "; the command had ended, but may run elsewhere before --at-least has passed."
                )
        finally:
            self._child.discard()  # before the release of the lock, in each case
        if self._release(grant, status):
            self._report(f"Released {self._name} after {time.monotonic() - obtained:.3f} s, exit status {status}.")
            return status
        return LOCK_LOST

    def _not_acquired(self, waited: float) -> str:
        most, wait = self._order.max_waiters, self._order.wait
        if most is not None and (wait is None or waited < wait):
            return f"Did not wait for {self._name}: {most} or more others are already waiting."
        return f"Could not acquire {self._name} within {waited:.3f} s: others hold the lock or are ahead in the line."

    def _run_command(self, grant: Grant) -> int:
        child = self._child
        if grant.lost:
            return LOCK_LOST
        variables = {
            "INTERLOCK_NAME": grant.name,
            "INTERLOCK_FENCE": str(grant.fence),
            HELD_VARIABLE: f"{os.environ.get(HELD_VARIABLE, '')} {grant.id}".lstrip(),
        }
        if self._order.one_of is not None:
            variables["INTERLOCK_ITEM"] = grant.item
        try:
            child.start(os.environ | variables)
        except OSError as error:
            return fail(UNAVAILABLE, f"Cannot run {self._order.command[0]!r}: {error.strerror}. Check the program.")
        self._attend()
        status = TIMED_OUT if self._timed_out else child.status or 0
        if self._order.once is not None and status == 0 and self._was_stopped():
            status = BY_SIGNAL + self.ended_by  # it returned 0, but its work may be incomplete
        if not self._order.keep or self._lost:
            return status
        self._report(f"The command ended with {status}; holding {self._name} until its last process has exited.")
        threading.Thread(target=child.tell_when_all_are_gone, name="interlock-keep", daemon=True).start()
        return self._hold_on(status, math.inf, "; processes of the command still run. Stop them.")

    def _attend(self) -> None:
        """Forward signals until the command has ended; stop it if the lock is lost."""
        kill_at = math.inf
        limit_at = math.inf if self._order.timeout is None else time.monotonic() + self._order.timeout
        while True:
            self._child.look()
            if self._child.status is not None:
                return
            event = self._signals.next(max(0.0, min(POLL_INTERVAL, min(kill_at, limit_at) - time.monotonic())))
            if event is None:
                if time.monotonic() >= limit_at:
                    limit_at, self._timed_out = math.inf, True
                    self._report(f"The command has run for {self._order.timeout:g} s; stopping it.")
                    kill_at = self._stop()
                elif time.monotonic() >= kill_at:
                    kill_at = math.inf
                    self._child.kill()
            elif event.kind in ("signal", "suspend"):
                self._note(event)
                self._child.pass_on(event)
            elif event.kind == "lost" and not self._lost:
                self._say_lost("; stopping the command.")
                kill_at = self._stop()

    def _was_stopped(self) -> bool:
        """Return True if a signal that ends commands arrived before the command ended, handled or pending."""
        while (event := self._signals.next(0.0)) is not None and event.kind != "child":
            self._note(event)
        return bool(self.ended_by)

    def _note(self, event: SignalEvent) -> None:
        """Remember a signal that ends commands, unless the command sent it to its own group."""
        if event.ends and event.sender != self._child.pid:
            self.ended_by = event.number

    def _stop(self) -> float:
        """Stop the command; return the time at which it must be killed."""
        return time.monotonic() + (self._order.grace if self._child.ask_to_end() else 0.0)

    def _hold_on(self, status: int, until: float, lost: str) -> int:
        """Hold the lock until a moment, the end of all processes, or a signal.

        Args:
            status: the exit status of the command.
            until: the moment on the monotonic clock; infinite to wait for the processes.
            lost: the addition to the message of a loss.
        """
        while (left := until - time.monotonic()) > 0:
            event = self._signals.next(min(left, POLL_INTERVAL))
            if event is None or event.kind == "child":
                self._child.look()
            elif event.kind == "gone":
                break
            elif event.kind == "lost":
                self._say_lost(lost)
                return LOCK_LOST
            elif event.kind == "suspend":
                self._child.pass_on(event)
            else:
                self.ended_by = event.number
                if until == math.inf:
                    got = signal.Signals(event.number).name
                    say(f"Got {got}; releasing {self._name}. Processes of the command still run.")
                return BY_SIGNAL + event.number
        return status

    def _release(self, grant: Grant, status: int) -> bool:
        """Release, with a record for `once`; return False if the lock was lost before."""
        once = self._order.once
        try:
            done = once is not None and status == 0
            released = grant._complete(once or 0.0, f"{grant.fence} null") if done else grant.release()
        except StoreError:
            return True  # closing the connection retries, and reports
        if not released and not self._lost:
            self._say_lost(" before the command ended; others may have run at the same time.")
        return not self._lost

    def _say_lost(self, more: str) -> None:
        self._lost = True
        say(f"Lock {self._name} was lost because its lease expired or it was evicted{more}")

    def _report(self, text: str) -> None:
        if self._order.verbose:
            say(text)
