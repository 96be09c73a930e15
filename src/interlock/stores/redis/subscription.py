"""How waiting threads of one process hear that they were promoted: one subscription for all of them.

They read it themselves, one for all: see `readers`.
"""

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
from interlock.runtime.polling import READABLE, WakePipe, poller
from interlock.stores.redis.readers import Readers, ThreadWaiter
from interlock.stores.redis.waiters import RedisWaiters

RETRY = 0.25  # seconds between two attempts to subscribe again
SILENCE = 2.0  # seconds without a message; then the server is asked to confirm the subscription


class Subscription:
    """The subscription of one store, for threads.

    Args:
        factory: how to connect.
        channel: what to subscribe to.
        waiting: the waiters to wake.

    Attributes:
        live: whether messages are heard now.
        readers: the threads that wait, one of which reads.
    """

    def __init__(self, factory: ConnectionFactory, channel: str, waiting: RedisWaiters) -> None:
        self._factory = factory
        self.io_timeout = factory.io_timeout
        self._channel = channel
        self._registry = waiting
        self.readers = Readers(self._listen, self._close_connection)
        self._start_afresh()

    def _start_afresh(self) -> None:
        self.live = False
        self._connection: Connection | None = None
        # Re-entrant: a signal handler may acquire while this thread subscribes.
        self._opening = threading.RLock()
        self._tries = 0
        self._failure: StoreError | None = None
        self._retry_at = 0.0
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
        if self.readers.closed:
            raise StoreError("this connection was closed: connect again")

    def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _listen(self, waiter: ThreadWaiter, deadline: float, pipe: WakePipe) -> None:
        """Read until `waiter` was rung or the time is over; only one thread does so at a time.

        Args:
            waiter: that of the calling thread.
            deadline: when to stop, by the monotonic clock.
            pipe: what wakes it meanwhile.
        """
        readers = self.readers
        while not waiter.rung:
            if self._strayed and self._connection is not None:
                self._strayed = False
                if not self._factory.serves(self._connection.raw):
                    self.live = False
            if not self.live:
                self._subscribe_again()
            left = deadline - monotonic()
            if left <= 0 or readers.closed:
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
        self.readers.wake()

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
        if self.readers.closed or monotonic() < self._retry_at:
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
        self.readers.hearing = True  # if it is the one that reads who is told now, it need not be woken
        try:
            connection.parser.feed(data)
            for text in messages(connection.parser):
                self._registry.notify_message(text)
        except Garbage:
            self.live = False
        finally:
            self.readers.hearing = False

    def close(self) -> None:
        """End the subscription; its reader closes the files, or this call if nobody reads."""
        self.live = False
        self.readers.close()

    def reset(self, channel: str) -> str:
        """In a forked child: forget the parent's subscription, and take another channel."""
        self._close_connection()
        self.readers.reset()
        self._channel = channel
        self._start_afresh()
        return channel
