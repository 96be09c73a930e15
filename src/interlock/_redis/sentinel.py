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
        if monotonic() - self._sentinels.asked_at > CONFIRMED:
            self._confirm()
        primary = self._primary
        reply = super().exchange(command, line, owner)
        if monotonic() - self._sentinels.asked_at > CONFIRMED:
            self._confirm()
        if primary is not self._primary:  # perhaps another thread has heard of it
            raise outdated(self.factory.where)
        return reply

    def ask(self, message: Message, once_more: bool = True, asking: bool = False) -> Any:
        """As `Pool.ask`."""
        if monotonic() - self._sentinels.asked_at > CONFIRMED:
            self._confirm()
        primary = self._primary
        reply = super().ask(message, once_more, asking)
        if monotonic() - self._sentinels.asked_at > CONFIRMED:
            self._confirm()
        if primary is not self._primary:  # perhaps another thread has heard of it
            raise outdated(self.factory.where)
        return reply

    def ask_all(self, batch: Batch) -> list[Any]:
        """As `Pool.ask_all`."""
        if monotonic() - self._sentinels.asked_at > CONFIRMED:
            self._confirm()
        primary = self._primary
        replies = super().ask_all(batch)
        if monotonic() - self._sentinels.asked_at > CONFIRMED:
            self._confirm()
        if primary is not self._primary:
            return [outdated(self.factory.where)] * len(replies)
        return replies

    def _confirm(self) -> bool:
        """Ask the Sentinels, unless another thread has just done so; return whether there is a new primary."""
        with self._asking:
            began = monotonic()
            if began - self._sentinels.asked_at <= CONFIRMED or self._closed:
                return False
            if not self._sentinels.hear(began, self._replies(began + IO_TIMEOUT)):
                return False
            self.distrust()
            return True

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
