"""How waiting asyncio tasks hear that they were promoted: one subscription for each loop."""

import asyncio
import socket
from typing import Any

from interlock.errors import StoreError
from interlock.stores.redis.awire import PerLoop, TaskLink
from interlock.stores.redis.bells import Bells
from interlock.stores.redis.clients import Dialer
from interlock.stores.redis.near import Near
from interlock.stores.redis.problems import refuse
from interlock.stores.redis.resp import ReplyError, pack

RETRY = 0.25  # seconds between two attempts to subscribe again


class _Listening(TaskLink):
    """A connection that is subscribed."""

    def __init__(self, recipe: Dialer, ears: "AsyncEars") -> None:
        super().__init__(recipe)
        self._ears = ears
        self.subscribed = False
        self._turns: socket.socket | None = None

    def data_received(self, data: bytes) -> None:
        """Tell those whom the messages are for."""
        if not self.subscribed:
            super().data_received(data)
            return
        self.parser.feed(data)
        self._ears.bells.tell_all(self.parser)

    def connection_lost(self, error: Exception | None) -> None:
        """Subscribe again, if anybody waits."""
        self.hear_no_turns()
        super().connection_lost(error)
        if self.subscribed:
            self._ears.lost(self)

    def close(self) -> None:
        """As `TaskLink.close`."""
        self.hear_no_turns()
        super().close()

    def hear_turns(self) -> None:
        """Hear the neighbours in this loop, as long as the connection lasts."""
        turns = self._ears.near.turns
        if turns is not None:
            try:
                self._turns = turns.dup()  # each loop has its own: they end at different times
            except OSError:
                return  # no file is left, or it was closed: the waiters look by themselves
            self._loop.add_reader(self._turns, self._ears.near.hear_turns)

    def forget(self) -> None:
        """As `TaskLink.forget`."""
        super().forget()
        if self._turns is not None:
            self._turns.close()  # and the loop is left alone: it watches the parent's

    def hear_no_turns(self) -> None:
        """Hear the neighbours no more."""
        turns, self._turns = self._turns, None
        if turns is not None:
            if not self._loop.is_closed():
                self._loop.remove_reader(turns)
            turns.close()


class AsyncEars:
    """The subscriptions of one store, for asyncio tasks.

    Args:
        recipe: how to connect.
        channel: what to subscribe to.
        bells: whom to tell.
        near: what the neighbours say.
    """

    def __init__(self, recipe: Dialer, channel: str, bells: Bells, near: Near) -> None:
        self._recipe = recipe
        self.patience = recipe.patience
        self._channel = channel
        self.bells = bells
        self.near = near
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._links: PerLoop[_Listening] = PerLoop(self._open)
        self._again: set[asyncio.Task[None]] = set()

    @property
    def live(self) -> bool:
        """True while the running loop is subscribed."""
        return self._links.here() is not None

    async def aask(self, _: Any) -> None:
        """Subscribe, unless that is done already.

        Raises:
            StoreError: the server can't be reached, or refuses.
        """
        if not self.live:
            await self._links.get()

    async def _open(self) -> _Listening:
        link = _Listening(self._recipe, self)
        await link.open()
        try:
            reply = await link.ask(pack("SUBSCRIBE", self._channel))
        except BaseException:
            link.close()
            raise
        if isinstance(reply, ReplyError):
            link.close()
            refuse(reply, self._recipe.where)
        link.subscribed = True
        self.near.open(self._channel)
        self._tidy()
        link.hear_turns()
        return link

    def lost(self, link: _Listening) -> None:
        """A subscription ended: make a new one while somebody waits."""
        if self._links.closed or not self.bells.ids:
            return
        task = asyncio.get_running_loop().create_task(self._subscribe_again(), name="interlock-ears")
        self._again.add(task)
        task.add_done_callback(self._again.discard)

    async def _subscribe_again(self) -> None:
        while self.bells.ids and not self._links.closed:
            try:
                await self.aask(None)
            except StoreError:
                await asyncio.sleep(RETRY)
            else:
                self.bells.ring_all()  # what was said meanwhile was not heard: look
                return

    def opening(self) -> "list[asyncio.Task[Any]]":
        """Return the connections that are being made for the running loop."""
        return [*self._links.opening()]

    def links(self) -> list[TaskLink]:
        """Return the connections of the running loop."""
        return [*self._links.links()]

    def close(self) -> None:
        """End the subscriptions."""
        for task in self._again:
            task.cancel()
        self._links.close()
        self._tidy()
        self.near.close()

    def _tidy(self) -> None:
        """Let loops that have ended hear nothing."""
        for link in self._links.stranded():
            link.hear_no_turns()

    def reset(self, channel: str) -> str:
        """In a forked child: forget the parent's subscription, and take another channel."""
        self._links.forget()
        self.near.reset()
        self._channel = channel
        self._start_afresh()
        return channel
