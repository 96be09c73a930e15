"""The connections of threads to the primary that Sentinel names."""

import threading
from time import monotonic
from typing import Any

from interlock._redis.clients import OneServer
from interlock._redis.connection import Connection
from interlock._redis.message import Message, outdated
from interlock._redis.pipeline import Batch
from interlock._redis.pool import Pool
from interlock._redis.sentinels import ASK, CONFIRMED, IO_TIMEOUT, Sentinels
from interlock.core.errors import StoreError


class SentinelPool(Pool):
    """As `Pool`; no answer is believed unless Sentinel named its primary within a second.

    Args:
        factory: how to connect to the primary.
    """

    def __init__(self, factory: OneServer) -> None:
        super().__init__(factory)
        self._watched = factory
        self._start_asking()

    def _start_asking(self) -> None:
        self._sentinels = Sentinels(self._watched, tasks=False)
        self._open: dict[int, Connection] = {}
        self._asking = threading.RLock()  # re-entrant: a signal handler may acquire while its thread asks

    def exchange(self, command: bytes, line: str, owner: str | None) -> Any:
        """As `Pool.exchange`."""
        primary = self._confirmed()
        reply = super().exchange(command, line, owner)
        if primary is not self._confirmed():
            raise outdated(self.factory.where)
        return reply

    def ask(self, message: Message, once_more: bool = True, asking: bool = False) -> Any:
        """As `Pool.ask`."""
        primary = self._confirmed()
        reply = super().ask(message, once_more, asking)
        if primary is not self._confirmed():
            raise outdated(self.factory.where)
        return reply

    def ask_all(self, batch: Batch) -> list[Any]:
        """As `Pool.ask_all`."""
        primary = self._confirmed()
        replies = super().ask_all(batch)
        if primary is not self._confirmed():
            return [outdated(self.factory.where)] * len(replies)
        return replies

    def _confirmed(self) -> object:
        """Return which primary it is, as the Sentinels named it within a second; another thread may have heard it."""
        if monotonic() - self._sentinels.asked_at > CONFIRMED:
            with self._asking:
                began = monotonic()
                asks = began - self._sentinels.asked_at > CONFIRMED and not self._closed
                if asks and self._sentinels.hear(began, self._replies(began + IO_TIMEOUT)):
                    self.distrust()
        return self._primary

    def _replies(self, end: float) -> list[tuple[Any, Any]]:
        """Ask all, then read all."""
        asked = [
            (client, connection) for client in self._sentinels.to_ask() if (connection := self._sent(client, end))
        ]
        replies = []
        try:
            while asked:
                client, connection = asked.pop()
                try:
                    reply = connection.rest(connection.receive(max(end, monotonic() + IO_TIMEOUT / 10)), end)
                except (OSError, ValueError):  # no answer, or none of a Sentinel
                    connection.close()
                    self._sentinels.rest(client)
                except BaseException:
                    connection.close()
                    raise
                else:
                    replies.append((client, reply))
                    self._open[id(client)] = connection
        finally:
            for _, connection in asked:  # only if it was interrupted
                connection.close()
        return replies

    def _sent(self, client: Any, end: float) -> Connection | None:
        """Send the question over a connection that is open, else over a new one."""
        connection = self._open.pop(id(client), None)
        if connection is not None:
            try:
                connection.send(ASK.command, end)
                return connection
            except OSError:
                connection.close()
        try:
            factory = self._sentinels.factory_for(client)
            connection = Connection(factory, factory.io_timeout)
        except StoreError:
            self._sentinels.rest(client)
            return None
        try:
            connection.send(ASK.command, monotonic() + IO_TIMEOUT)
        except OSError:
            connection.close()
            return None
        return connection

    def close(self) -> None:
        """As `Pool.close`."""
        super().close()
        while self._open:
            self._open.popitem()[1].close()

    def reset(self) -> None:
        """As `Pool.reset`."""
        super().reset()
        self._start_asking()
