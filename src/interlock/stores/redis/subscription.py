"""How waiting threads of one process hear that they were promoted: one subscription for all of them.

The waiting threads read it themselves: one of them reads, and passes on what is for the others; when it has its own
message, the next one reads.  So a lone waiter is woken by the kernel, not by another thread.
"""

import math
import threading
from time import monotonic
from typing import Any

from interlock._redis.clients import ConnectionFactory
from interlock._redis.connection import Connection
from interlock._redis.errors import refuse
from interlock._redis.message import broken, garbled, no_answer
from interlock._redis.pool import MOST
from interlock._redis.resp import Garbage, ReplyError, messages, pack
from interlock._redis.routing import Reading
from interlock.core.errors import StoreError
from interlock.core.queue import Granted
from interlock.runtime.polling import READABLE, WakePipe, poller
from interlock.stores.redis.waiters import RedisWaiters

GOODBYE = 1.0  # seconds to wait for whoever reads
RETRY = 0.25  # seconds between two attempts to subscribe again
SILENCE = 2.0  # seconds without a message; then the server is asked to confirm the subscription


class Subscription:
    """The subscription of one store, for threads.

    Args:
        factory: how to connect.
        channel: what to subscribe to.
        waiting: the waiters to wake.
    """

    def __init__(self, factory: ConnectionFactory, channel: str, waiting: RedisWaiters) -> None:
        self._factory = factory
        self.io_timeout = factory.io_timeout
        self._channel = channel
        self._registry = waiting
        self._start_afresh()

    def _start_afresh(self) -> None:
        self.live = False
        self._connection: Connection | None = None
        # Re-entrant: a signal handler may acquire while this thread subscribes, or reads.
        self._opening = threading.RLock()
        self._reading = threading.RLock()
        self._tries = 0
        self._failure: StoreError | None = None
        self._sleepers: dict[int, ThreadWaiter] = {}
        self._reader: ThreadWaiter | None = None
        self._hearing = False
        self._retry_at = 0.0
        self._pipe: WakePipe | None = None
        self._waking = (
            threading.RLock()
        )  # re-entrant: a signal handler, or the garbage collector, may release a grant
        self._subscribed = False
        self._heard_at = 0.0
        self._asked_at = 0.0
        self._suspected = False
        self._strayed = False

    def ask(self, _: Any) -> None:
        """Subscribe, unless that is done already.

        Raises:
            StoreError: the server can't be reached, or refuses.
        """
        known = self._tries
        if not self._opening.acquire(timeout=2 * self.io_timeout):
            raise no_answer(self._factory.where, 2 * self.io_timeout)
        try:
            if self.live:
                return
            if self._tries != known and self._failure is not None:
                # Somebody tried meanwhile: to try one after the other would take all their times together.
                raise type(self._failure)(*self._failure.args)
            try:
                again = self._subscribe()
            except StoreError as error:
                self._failure = error
                raise
            finally:
                self._tries += 1
            self._failure = None
        finally:
            self._opening.release()
        if again:
            self._registry.wake_all()  # what was said meanwhile was not heard: look

    def _subscribe(self) -> bool:
        """Make the subscription; return whether there was one before; under `_opening`."""
        self._see_that_open()
        self._close_connection()
        connection = self._connect()
        try:
            reply = connection.ask(pack("SUBSCRIBE", self._channel), self.io_timeout)
            if isinstance(reply, ReplyError):
                refuse(reply, self._factory.where)
            self._see_that_open()
        except OSError as error:
            connection.close()
            raise broken(self._factory.where, error) from error
        except Garbage as error:
            connection.close()
            raise garbled(self._factory.where, error) from None
        except BaseException:
            connection.close()
            raise
        connection.sock.setblocking(False)
        self._close_connection()  # a signal handler may have been here meanwhile
        self._connection = connection
        self._heard_at, self._asked_at, self._suspected, self._strayed = monotonic(), 0.0, False, False
        again, self._subscribed = self._subscribed, True
        self.live = True
        return again

    def _connect(self) -> Connection:
        for left in reversed(range(self._factory.choices)):
            try:
                return Connection(self._factory)
            except StoreError:
                if not left:
                    raise
        raise AssertionError("there is always a choice")

    def map_changed(self) -> None:
        """Note that a cluster is another one: see that the subscription is at a node of it, and let all look."""
        self._strayed = True
        self._registry.wake_all()

    def _see_that_open(self) -> None:
        if self._retry_at == math.inf:
            raise StoreError("this connection was closed: connect again")

    def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def listen(self, waiter: "ThreadWaiter", deadline: float) -> None:
        """Read until `waiter` was rung or the time is over; the caller holds `_reading`."""
        self._hearing = False  # an interrupt may have come while it was set
        if self._retry_at == math.inf:
            return  # closed
        if self._pipe is None:
            self._pipe = WakePipe()
        pipe = self._pipe
        while not waiter.rung:
            if self._strayed and self._connection is not None:
                self._strayed = False
                if not self._factory.serves(self._connection.raw):
                    self.live = False
            if not self.live:
                self._subscribe_again()
            left = deadline - monotonic()
            if left <= 0 or self._retry_at == math.inf:
                return  # late, or closed
            connection = self._connection
            if connection is None or not self.live:
                self._sleep(pipe, min(left, max(0.01, self._retry_at - monotonic())), None)
            else:
                if self._sleep(pipe, min(left, self._quiet_for()), connection):
                    self._hear(connection)
                self._confirm(connection)

    def _quiet_for(self) -> float:
        """Return how many seconds may pass without a message until there is something to do."""
        if self._suspected and not self._asked_at:
            return 0.0
        ends = self._asked_at + self.io_timeout if self._asked_at else self._heard_at + SILENCE
        return max(0.0, ends - monotonic())

    def _confirm(self, connection: Connection) -> None:
        """See that the server, and whatever lies between, still knows of the subscription.

        To subscribe again changes nothing where it does, and mends it where it does not.
        """
        if self._quiet_for() > 0:
            return
        if self._asked_at:
            self.live = False  # no answer: a new connection
            return
        self._asked_at, self._suspected = monotonic(), False
        if self._factory.nodes is not None:
            self._read_map(connection)
            if not self.live:
                return
        try:
            connection.sock.send(pack("SUBSCRIBE", self._channel))
        except OSError:
            self.live = False

    def _read_map(self, connection: Connection) -> None:
        """See that the node of the subscription is in the cluster: one that has left confirms all, and is deaf."""
        try:
            self._factory.nodes.ask(Reading())
        except StoreError:
            return  # whoever waits asks the store in a while, and is told there
        if not self._factory.serves(connection.raw):
            self.live = False

    def distrust(self) -> None:
        """Subscribe anew, at another server: this one may have been replaced."""
        self.live = False
        self._wake()

    def suspect(self) -> None:
        """Note that a claim was promoted and not told."""
        self._suspected = True

    @staticmethod
    def _sleep(pipe: WakePipe, seconds: float, connection: Connection | None) -> bool:
        """Wait until woken, or until something comes; tell whether something came."""
        poll = poller()
        poll.register(pipe.fileno(), READABLE)
        number = -1 if connection is None else connection.sock.fileno()
        if number >= 0:  # else another thread has just closed it
            poll.register(number, READABLE)
        ready = {fd for fd, _ in poll.poll(seconds * 1000 + 0.5)}
        if pipe.fileno() in ready:
            pipe.drain()
        return number in ready

    def _subscribe_again(self) -> None:
        if monotonic() < self._retry_at:
            return
        self._retry_at = monotonic() + RETRY
        try:
            self.ask(None)
        except StoreError:
            pass  # whoever waits asks the store in a while, and is told there

    def _hear(self, connection: Connection) -> None:
        try:
            data = connection.sock.recv(MOST)
            while getattr(connection.sock, "pending", int)():  # TLS has more than the system knows of
                data += connection.sock.recv(MOST)
        except OSError as error:
            if isinstance(error, BlockingIOError) or type(error).__name__ == "SSLWantReadError":
                return
            data = b""
        if not data:
            self.live = False
            return
        self._heard_at, self._asked_at = monotonic(), 0.0
        self._hearing = True  # if it is the one that reads who is told now, it need not be woken
        try:
            connection.parser.feed(data)
            for text in messages(connection.parser):
                self._registry.notify_message(text)
        except Garbage:
            self.live = False
        finally:
            self._hearing = False

    def sleep(self, waiter: "ThreadWaiter", seconds: float) -> None:
        """Block the calling thread until `waiter` is rung or the time is over."""
        deadline = monotonic() + seconds
        key = id(waiter)
        self._sleepers[key] = waiter
        try:
            while not waiter.rung:
                if self._reading.acquire(blocking=False):
                    self._read(waiter, deadline)
                    return
                left = deadline - monotonic()
                if left <= 0:
                    return
                waiter.lock.acquire(timeout=left)
        finally:
            self._sleepers.pop(key, None)
            if self._reader is None:
                self._next_reader()

    def _read(self, waiter: "ThreadWaiter", deadline: float) -> None:
        """Be the reader; the caller holds `_reading`, which is released.

        A signal handler may wait in the middle of another wait of its thread, which goes on to read after it.
        """
        outer = self._reader
        hearing = self._hearing
        try:
            self._reader = waiter
            self.listen(waiter, deadline)
        finally:
            self._reader, self._hearing = outer, hearing
            if outer is not None and outer.rung:
                self._wake()  # it was told while another was the reader, and its sleep goes on
            if self._retry_at == math.inf and outer is None:
                self._finish()  # `close` did not wait so long
            self._read_no_more()

    def _read_no_more(self) -> None:
        """Let others read; safe to repeat."""
        try:
            self._reading.release()
        except RuntimeError:
            pass  # this thread did not read

    def done(self, waiter: "ThreadWaiter") -> None:
        """The thread of `waiter` waits no more: if an interrupt left it as the reader, others read from here on."""
        if self._reader is waiter or self._reader is None:
            self._reader = None
            self._read_no_more()
            if self._sleepers:
                self._next_reader()

    def _next_reader(self) -> None:
        # The last to come will wait longest: with the first, nearly every hand-over would change the reader too.
        for waiter in reversed(list(self._sleepers.values())):
            if not waiter.rung:
                waiter.nudge()
                return

    def interrupt(self, waiter: "ThreadWaiter") -> None:
        """Wake the thread that reads, if it is that of `waiter`."""
        if self._reader is waiter and not self._hearing:
            self._wake()

    def _wake(self) -> None:
        with self._waking:  # the pipe is not closed meanwhile
            if self._pipe is not None:
                self._pipe.wake()

    def close(self) -> None:
        """End the subscription; its reader closes the files, or this call if nobody reads."""
        self.live = False
        self._retry_at = math.inf
        self._wake()
        if self._reading.acquire(timeout=GOODBYE):
            self._finish()
            self._read_no_more()

    def _finish(self) -> None:
        """Close the files; under `_reading`."""
        self._close_connection()
        self._close_pipe()

    def _close_pipe(self) -> None:
        with self._waking:
            pipe, self._pipe = self._pipe, None
            if pipe is not None:
                pipe.close()

    def reset(self, channel: str) -> str:
        """In a forked child: forget the parent's subscription, and take another channel."""
        self._waking = threading.RLock()  # another thread of the parent may have it
        self._close_connection()
        self._close_pipe()
        self._channel = channel
        self._start_afresh()
        return channel


class ThreadWaiter:
    """What one waiting thread has: rung when it was promoted, or should look."""

    __slots__ = ("_id", "_message", "_subscription", "lock", "rung")

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._message: Granted | None = None
        self.rung = False
        self.lock = threading.Lock()
        self.lock.acquire()

    def tell(self, message: Granted | None = None) -> None:
        """Wake the thread."""
        if message is not None:
            self._message = message
        self.rung = True
        self.nudge()
        self._subscription.interrupt(self)

    def wake(self) -> None:
        """As `ThreadWakeup.wake`."""
        self.tell()

    def nudge(self) -> None:
        """Wake the thread to look around."""
        try:
            self.lock.release()
        except RuntimeError:
            pass  # it is awake

    def wait(self, seconds: float) -> Granted | None:
        """As `ThreadWakeup.wait`."""
        self._subscription.sleep(self, seconds)
        self.rung = False
        message, self._message = self._message, None
        return message

    def close(self) -> None:
        """Nothing to give back, unless an interrupt came while it read."""
        self._subscription.done(self)
