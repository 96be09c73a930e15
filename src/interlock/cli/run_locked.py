"""What `interlock run` does: hold a lock while a command runs."""

import math
import os
import random
import signal
import threading
import time
from contextlib import closing
from typing import Any, NamedTuple

from interlock import Grant, Lock, LockError, LockLost, Locks, StoreError
from interlock.cli import called, connect
from interlock.cli.child_process import ENDING, ORDERS, Child, SignalEvent, Signals, WaitBroken, look_up, stop_here
from interlock.cli.exit_codes import BY_SIGNAL, LOST, UNAVAILABLE, USAGE, fail, say, store_failed
from interlock.cli.output import telling_wait
from interlock.core.claims import fits
from interlock.runtime import log

HELD = "INTERLOCK_HELD"
"""In the environment of a command: the ids of the claims of the runs around it, the innermost last."""
LONGEST_LABEL = 200
TIMED_OUT = 124  # as of timeout(1)
SHORTEST, LONGEST = 1.0, 30.0  # seconds until a command of `lead` that ended is started again
LASTED = 60.0  # seconds; a command that ran so long has not failed at its start
POLL_INTERVAL = 1.0  # seconds; only a safety net: a thread that was here before us may take the signal of a death


class Order(NamedTuple):
    """The arguments of `interlock run`, `once` or `lead`.

    Attributes:
        name: of the lock.
        command: the words of the command.
        shared, permits, units: the kind of lock; exclusive unless one of the first two is given.
        wait: seconds to wait at most; None for no limit, 0 for one try.
        conflict: the exit status if the lock is not obtained.
        ttl: seconds of lease; None for the default.
        grace: seconds from TERM to KILL when the lock is lost.
        at_least: seconds that the lock is held at least, even if the command ends sooner.
        keep: hold the lock until every process of the command is gone.
        store, namespace, label: as `connect` and `lock` take them.
        verbose: say what happens.
        timeout: seconds after which the command is stopped; None for no limit.
        attach: the token of a hold to take over; None to acquire.
        one_of: "name=a,b" to hold one of several things; None for a lock.
        once: seconds for which a record of a completed run is kept; None to run in any case.
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
    """Return why a run would wait as long as the runs around it last; "" if it need not, or does not wait.

    Claims are found by their ids, so neither another store, nor another namespace, nor a run that has ended meanwhile
    is taken for one that holds this lock.

    Args:
        order: what to do.
        locks: of its store.
        lock: what is to be acquired; None with a token.

    Raises:
        StoreError: the line can't be looked at.
    """
    around = os.environ.get(HELD, "").split()
    if not around or order.wait == 0 or order.attach is not None or order.one_of is not None:
        return ""
    line = locks.claims(order.name)
    held = [(view.units, view.capacity) for view in line if view.state == "using" and view.id in around]
    # A claim that must wait for a run around this one keeps all behind it waiting too: no claim is overtaken.
    wanted = [(view.units, view.capacity) for view in line if view.state == "pending"]
    if all(fits(units, capacity, held) for units, capacity in (*wanted, (lock._spec.units, lock._spec.capacity))):
        return ""
    return f"{order.name!r} is held by the interlock run that this one is a part of, and is not free before that ends"


def run_guarded(order: Order) -> int:
    """Do it.

    Returns:
        The exit status.
    """
    path = look_up(order.command[0])
    if path is None:
        return fail(
            UNAVAILABLE, f"can't run {order.command[0]!r}: it is not there, or not executable; give a program"
        )
    _fill_standard_streams()
    with closing(Signals()) as signals:
        pause = SHORTEST
        while True:
            began = time.monotonic()
            guarded = GuardedRun(order, signals, Child(path, order.command, signals, order.keep))
            try:
                status = guarded.run()
            except StoreError as error:
                status = store_failed(error)
            if guarded.ended_by or not order.again:
                return status
            pause = SHORTEST if time.monotonic() - began > LASTED else min(LONGEST, 2 * pause)
            say(f"{order.command[0]!r} ended with {status}; next try for {order.name!r} in about {pause:g} s")
            try:
                signals.wait_again()
                with signals.breaking():
                    time.sleep(pause * random.uniform(0.5, 1.0))
            except WaitBroken as signalled:
                return BY_SIGNAL + signalled.number


def _fill_standard_streams() -> None:
    """Let no file of ours become descriptor 0, 1 or 2 where those are closed; the command still finds them so."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


class GuardedRun:
    """One run: the lock, the command, and the signals between them.

    Args:
        order: what to do.
        signals: those of this process.
        child: the process of the command, not started yet.

    Attributes:
        ended_by: the signal that ended the wait or was passed on to end the command; 0 if there was none.
    """

    def __init__(self, order: Order, signals: Signals, child: Child) -> None:
        self._order = order
        self._signals = signals
        self._child = child
        self._name = "what the token holds" if order.attach else repr(order.one_of or order.name)
        self._grant: Grant | None = None  # kept, so that closing the connection can release it once more
        self._lost = self._timed_out = False
        self.ended_by = 0

    def run(self) -> int:
        """Wait for the lock, run the command, release; return the exit status.

        Raises:
            InvalidArgument, StoreError: the client could not request the lock.
        """
        try:
            return self._with_store()
        except WaitBroken as signalled:
            self.ended_by = signalled.number
            self._tell(f"no longer waiting for {self._name}: got {signal.Signals(signalled.number).name}")
            return BY_SIGNAL + signalled.number
        except LockLost as error:
            return fail(LOST, str(error))
        finally:
            self._child.discard()
            log.sink = lambda line: None  # Python aborts if a daemon thread writes while it ends

    def _with_store(self) -> int:
        # What the library logs is said only with -v: it goes on trying, and a loss is told in any case.
        log.sink = say if self._order.verbose else lambda line: None
        with self._signals.breaking():
            locks = connect(self._order.store, namespace=self._order.namespace)
        try:
            lock = None if self._order.attach else self._lock(locks)
            with self._signals.breaking():
                in_vain = waits_for_itself(self._order, locks, lock)
            if in_vain and self._order.wait is None:
                return fail(USAGE, f"{in_vain}: this one would wait for ever; leave it out, or give it -n or -w")
            if in_vain:
                say(in_vain)
            return self._with_lock(locks, lock)
        finally:
            try:
                locks.close()
            except LockError as error:
                say(f"the lock {self._name} could not be released, its lease will end: {error}")

    def _lock(self, locks: Locks) -> Any:
        order = self._order
        program = os.fsencode(os.path.basename(order.command[0])).decode(errors="replace")[:LONGEST_LABEL]
        label = program if order.label is None else order.label
        how: dict[str, Any] = {"ttl": order.ttl, "label": label, "on_lost": self._on_lost}
        if order.one_of is not None:
            name, _, items = order.one_of.partition("=")
            return locks.one_of(name, items.split(","), **how)
        if order.once is not None:
            once = locks.once(order.name, keep=order.once, **how)
            return Lock(once._client, once._spec, once._options)
        if order.permits is not None:
            return locks.semaphore(order.name, order.permits, units=order.units or 1, **how)
        return locks.rwlock(order.name, **how).read() if order.shared else locks.lock(order.name, **how)

    def _on_lost(self, grant: Grant) -> None:
        """Called in the thread that renews the lease."""
        self._signals.put(SignalEvent("lost"))

    def _with_lock(self, locks: Locks, lock: Any) -> int:
        order = self._order
        started = time.monotonic()
        self._tell(f"waiting for {self._name} in {called(order.store)}")
        line = order.one_of.partition("=")[0] if order.one_of else order.name
        with self._signals.breaking(), telling_wait(locks, line, self._name):
            if order.attach is not None:
                grant = locks.attach(order.attach, ttl=order.ttl, on_lost=self._on_lost)
            else:
                grant = lock.acquire(timeout=order.wait)
        obtained = time.monotonic()
        if grant is None and order.once is not None and locks.is_done(order.name):
            self._tell(f"{self._name} was done before")
            return 0
        if grant is None:
            self._tell(f"did not obtain {self._name} within {obtained - started:.3f} s: others hold it")
            return order.conflict
        self._grant = grant
        self._signals.wait_is_over()
        self._tell(f"obtained {self._name} after {obtained - started:.3f} s, fence {grant.fence}")
        try:
            status = self._run_command(grant)
            until = obtained + order.at_least
            if not self._lost and not self.ended_by and until > time.monotonic():
                self._tell(f"the command ended with {status}, holding {self._name} as long as --at-least says")
                status = self._hold_on(
                    status, until, " after the command had ended: it may run elsewhere sooner than --at-least says"
                )
        finally:
            self._child.discard()  # before the lock is released, in each case
        if self._release(grant, status):
            self._tell(f"released {self._name} after {time.monotonic() - obtained:.3f} s, exit status {status}")
            return status
        return LOST

    def _run_command(self, grant: Grant) -> int:
        child = self._child
        if grant.lost:
            return LOST
        told = {
            "INTERLOCK_NAME": grant.name,
            "INTERLOCK_FENCE": str(grant.fence),
            HELD: f"{os.environ.get(HELD, '')} {grant.id}".lstrip(),
        }
        if self._order.one_of is not None:
            told["INTERLOCK_ITEM"] = grant.item
        try:
            child.start(os.environ | told)
        except OSError as error:
            return fail(UNAVAILABLE, f"can't run {self._order.command[0]!r}: {error.strerror}; check the program")
        self._attend()
        status = TIMED_OUT if self._timed_out else child.status or 0
        if self._order.once is not None and status == 0 and self._was_stopped():
            status = BY_SIGNAL + self.ended_by  # it returned 0, but its work may be incomplete
        if not self._order.keep or self._lost:
            return status
        self._tell(f"the command ended with {status}, holding {self._name} until its last process is gone")
        threading.Thread(target=child.tell_when_all_are_gone, name="interlock-keep", daemon=True).start()
        return self._hold_on(status, math.inf, ", and processes of the command still run: stop them")

    def _attend(self) -> None:
        """Pass signals on until the command has ended; stop it if the lock is lost."""
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
                    self._tell(f"the command has run for {self._order.timeout:g} s: stopping it")
                    kill_at = self._stop()
                elif time.monotonic() >= kill_at:
                    kill_at = math.inf
                    self._child.send(signal.SIGKILL)
            elif event.kind == "signal":
                self._pass_on(event)
            elif not self._lost:
                self._say_lost("; stopping the command")
                kill_at = self._stop()

    def _was_stopped(self) -> bool:
        """Return True if a signal that ends commands arrived before the command ended, handled or pending."""
        while (event := self._signals.next(0.0)) is not None and event.number != signal.SIGCHLD:
            self._note(event)
        return bool(self.ended_by)

    def _note(self, event: SignalEvent) -> None:
        """Remember a signal that ends commands, unless the command itself sent the signal to its group."""
        if event.number in ORDERS and event.sender != self._child.pid:
            self.ended_by = event.number

    def _stop(self) -> float:
        """Let the command end; return when it is to be killed."""
        self._child.send(signal.SIGTERM)
        self._child.send(signal.SIGCONT)  # a stopped process does not take TERM
        return time.monotonic() + self._order.grace

    def _pass_on(self, event: SignalEvent) -> None:
        if event.number == signal.SIGCHLD:
            return
        self._note(event)
        if not event.by_terminal and event.sender != self._child.pid:
            self._child.send(event.number)
        if event.number == signal.SIGTSTP:
            stop_here()
            if not event.by_terminal:  # else the user who continues the job continues the command too
                self._child.send(signal.SIGCONT)

    def _hold_on(self, status: int, until: float, lost: str) -> int:
        """Hold the lock until a moment, until all processes are gone, or until a signal ends this.

        Args:
            status: that the command ended with.
            until: when, on the monotonic clock; infinite to wait for its processes.
            lost: what to say behind that the lock was lost.
        """
        while (left := until - time.monotonic()) > 0:
            event = self._signals.next(min(left, POLL_INTERVAL))
            if event is None or event.number == signal.SIGCHLD:
                self._child.look()
            elif event.kind == "gone":
                break
            elif event.kind == "lost":
                self._say_lost(lost)
                return LOST
            elif event.number == signal.SIGTSTP:
                stop_here()
            elif event.number in ENDING:
                self.ended_by = event.number
                if until == math.inf:
                    got = signal.Signals(event.number).name
                    say(f"got {got}: releasing {self._name}; processes of the command still run")
                return BY_SIGNAL + event.number
        return status

    def _release(self, grant: Grant, status: int) -> bool:
        """Release, with a record if it was to be done once; False if the lock was lost before."""
        once = self._order.once
        try:
            done = once is not None and status == 0
            released = grant._complete(once or 0.0, f"{grant.fence} null") if done else grant.release()
        except StoreError:
            return True  # closing the connection tries again, and tells
        if not released and not self._lost:
            self._say_lost(" before the command ended: it may have run beside others")
        return not self._lost

    def _say_lost(self, more: str) -> None:
        self._lost = True
        say(f"the lock {self._name} was lost (its lease ended, or it was evicted){more}")

    def _tell(self, text: str) -> None:
        if self._order.verbose:
            say(text)
