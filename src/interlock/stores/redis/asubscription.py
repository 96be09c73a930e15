"""How waiting asyncio tasks hear that they were promoted: one subscription for each loop."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from interlock._redis.aconnection import AsyncConnection
from interlock._redis.clients import ConnectionFactory
from interlock._redis.errors import refuse
from interlock._redis.perloop import PerLoop
from interlock._redis.resp import Garbage, ReplyError, messages, pack
from interlock._redis.routing import Reading
from interlock.core.errors import StoreError
from interlock.runtime.shared import call_on
from interlock.stores.redis.waiters import RedisWaiters

RETRY = 0.25  # seconds between two attempts to subscribe again
SILENCE = 2.0  # seconds without a message; then the server is asked to confirm the subscription


class _Listening(AsyncConnection):
    """A connection that is subscribed."""

    def __init__(self, factory: ConnectionFactory, subscription: "AsyncSubscription") -> None:
        super().__init__(factory)
        self._subscription = subscription
        self.subscribed = False
        self._heard_at = self._asked_at = 0.0
        self._pulse: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        """Tell those whom the messages are for."""
        if not self.subscribed:
            super().data_received(data)
            return
        self._heard_at, self._asked_at = self._loop.time(), 0.0
        try:
            self.parser.feed(data)
            for text in messages(self.parser):
                self._subscription.waiting.notify_message(text)
        except Garbage:
            self.is_garbled(data)

    def connection_lost(self, error: Exception | None) -> None:
        """Subscribe again, if anybody waits."""
        self._rest()
        super().connection_lost(error)
        if self.subscribed:
            self._subscription.lost(self)

    def close(self) -> None:
        """As `AsyncConnection.close`."""
        self._rest()
        super().close()

    def abandon(self) -> None:
        """As `AsyncConnection.abandon`."""
        self._rest()
        super().abandon()

    def begin(self) -> None:
        """Look from now on whether the subscription is still there."""
        self.subscribed = True
        self._heard_at = self._loop.time()
        self._pulse = self._loop.call_later(SILENCE, self.confirm, False)

    def _rest(self) -> None:
        if self._pulse is not None:
            self._pulse.cancel()
            self._pulse = None

    def confirm(self, now: bool) -> None:
        """See that the server, and whatever lies between, still knows of the subscription.

        To subscribe again changes nothing where it does, and mends it where it does not.

        Args:
            now: True if there is a doubt; else only after a silence, and while somebody waits.
        """
        self._rest()
        time = self._loop.time()
        if self._asked_at:
            if time >= self._asked_at + self._subscription.io_timeout:
                self._transport.abort()  # no answer: a new connection
                return
        elif now or (time >= self._heard_at + SILENCE and self._subscription.waiting.ids):
            self._asked_at = time
            self._transport.write(self._subscription.subscribe)
            self._subscription.read_map(self)
        until = self._asked_at + self._subscription.io_timeout if self._asked_at else time + SILENCE
        self._pulse = self._loop.call_later(max(0.001, until - time), self.confirm, False)

    def see_that_served(self) -> None:
        """End the connection if it leads to a node that has left the cluster: that one confirms all, and is deaf."""
        if not self.ended and not self.factory.serves(self._raw):
            self._transport.abort()


class AsyncSubscription:
    """The subscriptions of one store, for asyncio tasks.

    Args:
        factory: how to connect.
        channel: what to subscribe to.
        waiting: the waiters to wake.
    """

    def __init__(self, factory: ConnectionFactory, channel: str, waiting: RedisWaiters) -> None:
        self._factory = factory
        self.io_timeout = factory.io_timeout
        self._channel = channel
        self.waiting = waiting
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._connections: PerLoop[_Listening] = PerLoop(self._open)
        self._again: set[asyncio.Task[None]] = set()
        self._subscribed = False

    @property
    def live(self) -> bool:
        """True while the running loop is subscribed."""
        return self._connections.here() is not None

    async def aask(self, _: Any) -> None:
        """Subscribe, unless that is done already.

        Raises:
            StoreError: the server can't be reached, or refuses.
        """
        if not self.live:
            await self._connections.get()

    async def _open(self) -> _Listening:
        connection = await self._connect()
        try:
            reply = await connection.ask(self.subscribe)
        except BaseException:
            connection.close()
            raise
        if isinstance(reply, ReplyError):
            connection.close()
            refuse(reply, self._factory.where)
        connection.begin()
        if self._subscribed:
            self.waiting.wake_all()  # what was said meanwhile was not heard: look
        self._subscribed = True
        return connection

    async def _connect(self) -> _Listening:
        for left in reversed(range(self._factory.choices)):
            connection = _Listening(self._factory, self)
            try:
                await connection.open()
            except StoreError:
                if not left:
                    raise
            else:
                return connection
        raise AssertionError("there is always a choice")

    def map_changed(self) -> None:
        """Note that a cluster is another one: see that the subscriptions are at nodes of it, and let all look."""
        for connection in self._connections.all():
            try:
                connection._loop.call_soon_threadsafe(connection.see_that_served)
            except RuntimeError:
                pass  # its loop is closed
        self.waiting.wake_all()

    def read_map(self, connection: _Listening) -> None:
        """Let the map of a cluster be read, and see that the node of a subscription is in it."""
        if self._factory.nodes is not None and not self._connections.closed:
            self._start(self._read_map(connection), "interlock-reads-map")

    async def _read_map(self, connection: _Listening) -> None:
        try:
            await self._factory.nodes.aask(Reading())
        except StoreError:
            return  # whoever waits asks the store in a while, and is told there
        connection.see_that_served()

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._again.add(task)
        task.add_done_callback(self._again.discard)

    @property
    def subscribe(self) -> bytes:
        """The command that subscribes."""
        return pack("SUBSCRIBE", self._channel)

    def distrust(self) -> None:
        """Subscribe anew, at another server: this one may have been replaced."""
        for connection in self._connections.take_all():
            connection.end()

    def suspect(self) -> None:
        """Note that a claim was promoted and not told."""
        connection = self._connections.here()
        if connection is not None:
            connection.confirm(True)

    def lost(self, connection: _Listening) -> None:
        """A subscription ended: make a new one while somebody waits."""
        if self._connections.closed or not self.waiting.ids:
            return
        self._start(self._subscribe_again(), "interlock-subscription")

    async def _subscribe_again(self) -> None:
        while self.waiting.ids and not self._connections.closed:
            try:
                await self.aask(None)
            except StoreError:
                await asyncio.sleep(RETRY)
            else:
                return

    def opening(self) -> "list[asyncio.Task[Any]]":
        """Return the connections that are being made for the running loop."""
        return [*self._connections.opening()]

    def connections(self) -> list[AsyncConnection]:
        """Return the connections of the running loop."""
        return [*self._connections.connections()]

    def leave_loop(self) -> list[AsyncConnection]:
        """Return the connections of the running loop, which ends: they are to be closed, and none follows them."""
        connections = self._connections.connections()
        for connection in connections:
            connection.subscribed = False
        return [*connections]

    def close(self) -> None:
        """End the subscriptions."""
        for task in list(self._again):
            call_on(task.get_loop(), task.cancel)
        self._connections.close()

    def reset(self, channel: str) -> str:
        """In a forked child: forget the parent's subscription, and take another channel."""
        self._connections.forget()
        self._channel = channel
        self._start_afresh()
        return channel
