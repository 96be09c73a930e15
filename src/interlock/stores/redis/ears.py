"""How waiting threads of one process hear that they were promoted: one subscription for all of them.

The waiting threads read it themselves: one of them reads, and passes on what is for the others; when it has its own
message, the next one reads.  So a lone waiter is woken by the kernel, not by another thread.
"""

import math
import os
import select
import threading
from time import monotonic
from typing import Any

from interlock.errors import StoreError
from interlock.protocols.queue import Told
from interlock.stores.redis.bells import Bells
from interlock.stores.redis.clients import Dialer
from interlock.stores.redis.message import broken
from interlock.stores.redis.near import Near
from interlock.stores.redis.problems import refuse
from interlock.stores.redis.resp import ReplyError, pack
from interlock.stores.redis.wire import MOST, Link, native

GOODBYE = 1.0  # seconds to wait for whoever reads
RETRY = 0.25  # seconds between two attempts to subscribe again


class Ears:
    """The subscription of one store, for threads.

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
        self._bells = bells
        self._near = near
        self._start_afresh()

    def _start_afresh(self) -> None:
        self.live = False
        self._link: Link | None = None
        self._opening = threading.Lock()
        self._reading = threading.Lock()
        self._sleepers: dict[int, ThreadEar] = {}
        self._reader: ThreadEar | None = None
        self._retry_at = 0.0
        self._poke_in = self._poke_out = -1

    def ask(self, _: Any) -> None:
        """Subscribe, unless that is done already.

        Raises:
            StoreError: the server can't be reached, or refuses.
        """
        with self._opening:
            if self.live:
                return
            self._close_link()
            link = Link(self._recipe)
            try:
                reply = link.ask(pack("SUBSCRIBE", self._channel))
            except OSError as error:
                link.close()
                raise broken(self._recipe.where, error) from error
            except BaseException:
                link.close()
                raise
            if isinstance(reply, ReplyError):
                link.close()
                refuse(reply, self._recipe.where)
            link.sock.setblocking(False)
            self._link = link
            self._near.open(self._channel)
            self.live = True

    def _close_link(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def listen(self, ear: "ThreadEar", deadline: float) -> None:
        """Read until `ear` was rung or the time is over; the caller holds `_reading`."""
        if self._poke_in < 0:
            self._poke_in, self._poke_out = os.pipe()
            os.set_blocking(self._poke_out, False)
        while not ear.rung:
            if not self.live:
                self._subscribe_again()
            left = deadline - monotonic()
            if left <= 0 or self._retry_at == math.inf:
                return  # late, or closed
            link = self._link
            if link is None or not self.live:
                self._sleep(min(left, max(0.01, self._retry_at - monotonic())), None)
            elif link.plain < 0 or link.unsure:
                if self._sleep(left, link):
                    self._hear(link)
            else:
                self._hear_compiled(link, ear, left)

    def _sleep(self, seconds: float, link: Link | None) -> bool:
        """Wait until poked, or until something comes; tell whether something came."""
        poll = select.poll()
        poll.register(self._poke_in, select.POLLIN)
        if self._near.fd >= 0:
            poll.register(self._near.fd, select.POLLIN)
        if link is not None:
            poll.register(link.sock, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(seconds * 1000 + 0.5)}
        if self._poke_in in ready:
            os.read(self._poke_in, 512)
        if self._near.fd in ready:
            self._near.hear_turns()
        return link is not None and link.sock.fileno() in ready

    def _hear_compiled(self, link: Link, ear: "ThreadEar", seconds: float) -> None:
        """Wait for messages and pass them on."""
        try:
            news = native.hear(link.plain, self._poke_in, self._near.fd, self._near.user, seconds)
        except OSError:
            self.live = False
            return
        if type(news) is list:
            self._reader = None  # who is told now need not be woken, if it is the one that reads
            for id, fence in news:
                self._bells.tell(id, fence)
            self._reader = ear
        elif type(news) is tuple:
            self._reader = None
            self._near.take(news)
            self._reader = ear
        elif news is False:
            os.read(self._poke_in, 512)
        elif news:
            link.unsure = True  # other messages, or a part of one: the parser has it
            self._take(link, news)
        elif news is not None:
            self.live = False

    def _subscribe_again(self) -> None:
        if monotonic() < self._retry_at:
            return
        self._retry_at = monotonic() + RETRY
        try:
            self.ask(None)
        except StoreError:
            pass  # whoever waits asks the store in a while, and is told there
        else:
            self._bells.ring_all()  # what was said meanwhile was not heard: look

    def _hear(self, link: Link) -> None:
        try:
            data = link.sock.recv(MOST)
            while getattr(link.sock, "pending", int)():  # TLS has more than the system knows of
                data += link.sock.recv(MOST)
        except OSError as error:
            if isinstance(error, BlockingIOError) or type(error).__name__ == "SSLWantReadError":
                return
            data = b""
        if data:
            self._take(link, data)
        else:
            self.live = False

    def _take(self, link: Link, data: bytes) -> None:
        link.parser.feed(data)
        self._bells.tell_all(link.parser)

    def sleep(self, ear: "ThreadEar", seconds: float) -> None:
        """Block the calling thread until `ear` is rung or the time is over."""
        deadline = monotonic() + seconds
        key = id(ear)
        self._sleepers[key] = ear
        try:
            while not ear.rung:
                if self._reading.acquire(blocking=False):
                    try:
                        self._reader = ear
                        self.listen(ear, deadline)
                    finally:
                        self._reader = None
                        self._reading.release()
                    return
                left = deadline - monotonic()
                if left <= 0:
                    return
                ear.lock.acquire(timeout=left)
        finally:
            self._sleepers.pop(key, None)
            if not self._reading.locked():
                self._next_reader()

    def _next_reader(self) -> None:
        # The last to come will wait longest: with the first, nearly every hand-over would change the reader too.
        for ear in reversed(list(self._sleepers.values())):
            if not ear.rung:
                ear.nudge()
                return

    def interrupt(self, ear: "ThreadEar") -> None:
        """Wake the thread that reads, if it is that of `ear`."""
        if self._reader is ear and self._poke_out >= 0:
            try:
                os.write(self._poke_out, b"!")
            except OSError:
                pass  # poked often enough, or closed

    def close(self) -> None:
        """End the subscription; whoever reads it has been rung."""
        self.live = False
        self._retry_at = math.inf
        quiet = self._reading.acquire(timeout=GOODBYE)
        self._close_link()
        self._near.close()
        self._close_pipe()
        if quiet:
            self._reading.release()

    def _close_pipe(self) -> None:
        for fd in (self._poke_in, self._poke_out):
            try:
                os.close(fd)
            except OSError:
                pass
        self._poke_in = self._poke_out = -1

    def reset(self, channel: str) -> str:
        """In a forked child: forget the parent's subscription, and take another channel."""
        self._close_link()
        self._near.reset()
        self._close_pipe()
        self._channel = channel
        self._start_afresh()
        return channel


class ThreadEar:
    """What one waiting thread has: rung when it was promoted, or should look."""

    __slots__ = ("_ears", "_id", "_message", "lock", "rung")

    def __init__(self, ears: Ears) -> None:
        self._ears = ears
        self._message: Told | None = None
        self.rung = False
        self.lock = threading.Lock()
        self.lock.acquire()

    def tell(self, message: Told | None = None) -> None:
        """Wake the thread."""
        if message is not None:
            self._message = message
        self.rung = True
        self.nudge()
        self._ears.interrupt(self)

    def nudge(self) -> None:
        """Wake the thread to look around."""
        try:
            self.lock.release()
        except RuntimeError:
            pass  # it is awake

    def wait(self, seconds: float) -> Told | None:
        """As `ThreadWakeup.wait`."""
        self._ears.sleep(self, seconds)
        self.rung = False
        message, self._message = self._message, None
        return message

    def close(self) -> None:
        """Nothing to give back."""
