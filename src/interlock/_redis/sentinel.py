"""The connections of threads to the primary that Sentinel names."""

import threading
from time import monotonic
from typing import Any

from interlock._redis.clients import Recipe
from interlock._redis.message import Message, outdated
from interlock._redis.pipeline import Batch
from interlock._redis.pool import Link, Wire
from interlock._redis.sentinels import ASK, CONFIRMED, PATIENCE, Sentinels
from interlock.core.errors import StoreError


class SentinelWire(Wire):
    """As `Wire`; no answer is believed unless Sentinel named its primary within a second.

    Args:
        recipe: how to connect to the primary.
    """

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        self._watched = recipe
        self._start_asking()

    def _start_asking(self) -> None:
        self._sentinels = Sentinels(self._watched, tasks=False)
        self._open: dict[int, Link] = {}
        self._asking = threading.RLock()  # re-entrant: a signal handler may acquire while its thread asks

    def exchange(self, command: bytes, line: str, owner: str | None) -> Any:
        """As `Wire.exchange`."""
        if monotonic() - self._sentinels.asked_at > CONFIRMED:
            self._confirm()
        reign = self._reign
        reply = super().exchange(command, line, owner)
        if monotonic() - self._sentinels.asked_at > CONFIRMED:
            self._confirm()
        if reign is not self._reign:  # perhaps another thread has heard of it
            raise outdated(self.recipe.where)
        return reply

    def ask(self, message: Message, once_more: bool = True, asking: bool = False) -> Any:
        """As `Wire.ask`."""
        if monotonic() - self._sentinels.asked_at > CONFIRMED:
            self._confirm()
        reign = self._reign
        reply = super().ask(message, once_more, asking)
        if monotonic() - self._sentinels.asked_at > CONFIRMED:
            self._confirm()
        if reign is not self._reign:  # perhaps another thread has heard of it
            raise outdated(self.recipe.where)
        return reply

    def ask_all(self, batch: Batch) -> list[Any]:
        """As `Wire.ask_all`."""
        if monotonic() - self._sentinels.asked_at > CONFIRMED:
            self._confirm()
        reign = self._reign
        replies = super().ask_all(batch)
        if monotonic() - self._sentinels.asked_at > CONFIRMED:
            self._confirm()
        if reign is not self._reign:
            return [outdated(self.recipe.where)] * len(replies)
        return replies

    def _confirm(self) -> bool:
        """Ask the Sentinels, unless another thread has just done so; return whether there is a new primary."""
        with self._asking:
            began = monotonic()
            if began - self._sentinels.asked_at <= CONFIRMED or self._closed:
                return False
            if not self._sentinels.hear(began, self._replies(began + PATIENCE)):
                return False
            self.distrust()
            return True

    def _replies(self, end: float) -> list[tuple[Any, Any]]:
        """Ask all, then read all."""
        asked = [(client, link) for client in self._sentinels.to_ask() if (link := self._sent(client, end))]
        replies = []
        try:
            while asked:
                client, link = asked.pop()
                try:
                    reply = link.rest(link.receive(max(end, monotonic() + PATIENCE / 10)), end)
                except (OSError, ValueError):  # no answer, or none of a Sentinel
                    link.close()
                    self._sentinels.rest(client)
                except BaseException:
                    link.close()
                    raise
                else:
                    replies.append((client, reply))
                    self._open[id(client)] = link
        finally:
            for _, link in asked:  # only if it was interrupted
                link.close()
        return replies

    def _sent(self, client: Any, end: float) -> Link | None:
        """Send the question over a connection that is open, else over a new one."""
        link = self._open.pop(id(client), None)
        if link is not None:
            try:
                link.send(ASK.command, end)
                return link
            except OSError:
                link.close()
        try:
            recipe = self._sentinels.recipe_for(client)
            link = Link(recipe, recipe.patience)
        except StoreError:
            self._sentinels.rest(client)
            return None
        try:
            link.send(ASK.command, monotonic() + PATIENCE)
        except OSError:
            link.close()
            return None
        return link

    def close(self) -> None:
        """As `Wire.close`."""
        super().close()
        while self._open:
            self._open.popitem()[1].close()

    def reset(self) -> None:
        """As `Wire.reset`."""
        super().reset()
        self._start_asking()
