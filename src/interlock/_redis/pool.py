"""Connections of threads: one command out, one reply in, with as little as possible in between."""

import os
import select
import socket
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, NoReturn

from interlock._redis.clients import Dialer, Recipe, beside
from interlock._redis.errors import NoRoom, code_of, full, is_full, no_room, refuse
from interlock._redis.keepalive import keep_alive
from interlock._redis.limit import Place, Pool
from interlock._redis.message import Message, broken, garbled, no_answer, outdated, unreachable
from interlock._redis.pipeline import Batch
from interlock._redis.primary import IDENTITY, Identity
from interlock._redis.resp import MISSING, Garbage, Push, ReplyError, pack, parser
from interlock._redis.scripts import with_source, without_memory
from interlock.core.claims import Claim
from interlock.core.errors import StoreError

ASKING = pack("ASKING")
MOST = 65536  # bytes taken at a time
SHORT = 4096  # bytes taken at first: nearly all replies are one number
LOOK = 250e-6  # seconds
MOST_MISSES = 8  # looked in vain so often in a row: stop looking
PAUSE = 200  # commands until the next tries
SHORTEST = 0.1  # seconds to connect in, also after a long wait for the turn
MOST_LATE = 4  # connections kept for one claim
_poll = select.poll


class Looking:
    """Whether to look for a reply before the thread sleeps: a server that is near answers sooner than it is woken.

    Between two looks the processor is given to whoever else wants it.  Where looking was in vain, because the server
    is far away or the machine has one processor, it stops.
    """

    def __init__(self) -> None:
        # Not all systems can tell which processors are this process's own.
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.seconds = LOOK if processors > 1 else 0.0
        self._misses = 0

    def pays(self) -> bool:
        """Tell whether to look now."""
        if self._misses < MOST_MISSES:
            return self.seconds > 0
        self._misses += 1
        if self._misses >= MOST_MISSES + PAUSE:
            self._misses = 0
        return False

    def found(self) -> None:
        """Note that a look found the reply."""
        self._misses = 0

    def missed(self) -> None:
        """Note that a look was in vain."""
        self._misses += 1


class Link:
    """One connection; the library has connected it and logged in.

    Each command has one absolute deadline, which signals do not stretch.

    Args:
        recipe: how to connect.
        patience: seconds to wait for each answer while connecting; None for the usual.
        era: of the wire, when it was made.
        looking: whether to look before sleeping.
        place: what it takes in the pool, until it is closed; None if it is not counted.

    Attributes:
        sock: the socket.
        used: the deadline of the last command; monotonic.
    """

    __slots__ = (
        "_connection", "_looking", "_poll", "_receive", "_send", "era", "parser", "place", "reign", "sock", "used",
    )  # fmt: skip

    def __init__(
        self,
        recipe: Dialer,
        patience: float | None = None,
        era: object = None,
        looking: Looking | None = None,
        place: Place | None = None,
    ) -> None:
        self.era = era
        self.reign: object = None
        self.place = place
        self.used = 0.0
        self._looking = looking
        self._connection = recipe.connection(patience)
        try:
            self._connection.connect()
        except Exception as error:
            self._connection.disconnect()
            raise (full if is_full(error) else unreachable)(recipe.where, error) from error
        except BaseException:
            self._connection.disconnect()
            raise
        self.sock: socket.socket = self._connection._sock
        self.parser = parser()
        keep_alive(self.sock, recipe.patience)
        self._poll: Any = None
        # gevent and its like put a socket and a way of waiting of their own there; TLS has its own too.
        if type(self.sock) is socket.socket and select.poll is _poll and type(self.sock).__module__ == "socket":
            self.sock.setblocking(False)
            self._poll = select.poll()
        self._send, self._receive = self.sock.send, self.sock.recv

    @property
    def connection(self) -> Any:
        """The library's connection."""
        return self._connection

    def ask(self, command: bytes, seconds: float) -> Any:
        """Send a command and return the reply, which may be a ReplyError.

        Args:
            command: as it is sent.
            seconds: to wait for all of it at most.
        """
        self.used = end = monotonic() + seconds
        self.send(command, end)
        return self.rest(self.first(end), end)

    def send(self, command: bytes, end: float) -> None:
        """Send a command until the moment `end`."""
        if self._poll is None:
            self.sock.settimeout(_left(end))
            self.sock.sendall(command)
            return
        sent = 0
        while True:
            try:
                sent += self._send(command[sent:] if sent else command)
            except BlockingIOError:
                self._wait(select.POLLOUT, end)
            if sent == len(command):
                return

    def first(self, end: float) -> bytes:
        """Return what comes first, after a look for it."""
        looking = self._looking
        if looking is not None and self._poll is not None and looking.pays():
            until = monotonic() + looking.seconds
            while True:
                try:
                    data = self._receive(SHORT)
                except BlockingIOError:
                    os.sched_yield()
                else:
                    looking.found()
                    return data
                if monotonic() >= until:
                    looking.missed()
                    break
        return self.receive(end)

    def receive(self, end: float) -> bytes:
        """Return what comes next, at the moment `end` at the latest."""
        if self._poll is None:
            self.sock.settimeout(_left(end))
            return self.sock.recv(MOST)
        while True:
            self._wait(select.POLLIN, end)
            try:
                return self._receive(MOST)
            except BlockingIOError:
                pass  # woken for nothing

    def _wait(self, what: int, end: float) -> None:
        # `poll` takes the signals that come out of its time (PEP 475).
        self._poll.register(self.sock, what)
        if not self._poll.poll(_left(end) * 1000):
            raise TimeoutError

    def rest(self, data: bytes, end: float) -> Any:
        """Return the reply that begins with `data`."""
        while True:
            if not data:
                raise ConnectionResetError("closed by the server")
            try:
                self.parser.feed(data)
                while True:
                    reply = self.parser.next()
                    if reply is MISSING:
                        break
                    if type(reply) is not Push:
                        return reply
            except Garbage:
                raise Garbage(data) from None
            data = self.receive(end)

    def next_reply(self, seconds: float) -> Any:
        """Return one more reply."""
        return self.next(monotonic() + seconds)

    def next(self, end: float) -> Any:
        """Return one more reply, at the moment `end` at the latest."""
        while type(reply := self.parser.next()) is Push:
            pass
        return self.rest(self.receive(end), end) if reply is MISSING else reply

    def send_and_close(self, command: bytes) -> None:
        """Send a command behind one that had no answer, without waiting for the reply, and close.

        If the server ever gets the first one, it gets this one right after it.
        """
        try:
            if self._poll is None:
                self.sock.settimeout(0)
            self.sock.send(command)
        except OSError:
            pass  # its buffer is full, or it has ended: then nothing of it can be late
        self.close()

    def close(self) -> None:
        """Close the socket; a forked child closes its copy only."""
        try:
            self.sock.close()
        except OSError:
            pass
        self._connection._sock = None
        self.place = None


def _left(end: float) -> float:
    left = end - monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _nobody_cares() -> None:
    """Take the news of another primary where there is no subscription."""


class Wire:
    """The connections to one server, for threads.

    Args:
        recipe: how to make them.

    Attributes:
        nodes: what names the servers that have keys; None as there is one.
        moved: called when there is another primary than before.
    """

    nodes: Any = None
    follows = False  # where a name has moved to

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self._patience = recipe.patience
        self._looking = Looking()
        self._identity = Identity()
        self.moved: Callable[[], object] = _nobody_cares
        self._pool = Pool(recipe.most)
        self._idle: list[Link] = self._pool.idle
        self._late: dict[str, list[Link]] = {}
        self._era = object()  # another one since a connection failed: those that were open then are not trusted
        self._reign = object()  # another one since there was another primary: the old one is not believed
        self._closed = False

    def exchange(self, command: bytes, line: str, owner: str | None) -> Any:
        """As `ask`, on the shortest way: most replies are one number, on a connection that is open already.

        Args:
            command, line, owner: as in `Message`.
        """
        try:
            link = self._idle.pop()
        except IndexError:
            return self.ask(Message(command, line, owner))
        if link.era is not self._era or link._poll is None:
            self._idle.append(link)
            return self.ask(Message(command, line, owner))
        try:
            link.used = end = monotonic() + self._patience
            link.send(command, end)
            data = link.first(end)
            if data[:1] == b":" and data[-1:] == b"\n" and data.count(b"\n") == 1:
                reply = int(data[1:-2])
            else:
                reply = link.rest(data, end)
        except BaseException as error:
            self._ended(link, owner, None, error)
        if type(reply) is int and link.reign is self._reign:
            self._put_back(link)
            return reply
        return self._answer(link, Message(command, line, owner), reply)

    def ask(self, message: Message, once_more: bool = True, asking: bool = False) -> Any:
        """Send a command and return the reply.

        Raises:
            Unreachable: nothing was sent.
            UnknownOutcome: it was sent, and no reply came.
            Refused: the server's answer is no.
        """
        command, _, owner, patience = message
        link = self._take(patience, owner is None)
        try:
            if asking:
                refusal = link.ask(ASKING + command, patience or self._patience)
                reply = link.next_reply(patience or self._patience)  # in any case: it would be the next one's else
                if isinstance(refusal, ReplyError):
                    reply = refusal
            else:
                reply = link.ask(command, patience or self._patience)
        except BaseException as error:
            self._ended(link, owner, patience, error)
        return self._answer(link, message, reply, once_more, asking)

    def ask_all(self, batch: Batch) -> list[Any]:
        """As `renewing.Pipeline.ask`, on one connection."""
        patience = batch.patience(self._patience)
        replies: list[Any] = []
        try:
            link = self._take(patience)
        except StoreError as error:
            return [error] * len(batch.messages)
        try:
            link.used = end = monotonic() + patience
            link.send(batch.data(), end)
            for _ in range(batch.replies()):
                replies.append(link.next(end))  # noqa: PERF401 - those that came are kept if one does not
        except BaseException as error:
            try:
                self._ended(link, None, patience, error)
            except StoreError as failure:
                if batch.asking:
                    replies = replies[1::2]
                return replies + [failure] * (len(batch.messages) - len(replies))
        if link.reign is not self._reign:
            link.close()
            return [outdated(self.recipe.where)] * len(batch.messages)
        self._put_back(link)
        return replies[1::2] if batch.asking else replies

    @property
    def has_late(self) -> bool:
        """True while a request had no answer that may still put a claim into a line."""
        return bool(self._late)

    def leave_late(self, owner: str, command: bytes) -> bool:
        """Send the command that takes a claim out of the line behind each one that may still put it there.

        A request that is late would else be performed after the claim has left, and strand it.

        Returns:
            False if there is none.
        """
        late = self._late.pop(owner, ())
        for link in late:
            link.send_and_close(command)
        return bool(late)

    def _ended(self, link: Link, owner: str | None, patience: float | None, error: BaseException) -> NoReturn:
        """Decide what becomes of a connection on which no reply came, and raise why."""
        if isinstance(error, ValueError):
            link.close()
            self.drop()
            raise garbled(self.recipe.where, error) from None
        if isinstance(error, OSError) and not isinstance(error, TimeoutError):
            link.close()
            self.drop()  # the others have probably ended too
            raise broken(self.recipe.where, error) from error
        if owner is None:
            link.close()
        else:
            late = self._late.setdefault(owner, [])
            if len(late) >= MOST_LATE:
                late.pop().close()  # the first ones count: they may put the claim into the line
            late.append(link)
            link.place = None  # others need connections too, until the claim has left
        if not isinstance(error, TimeoutError):
            raise error
        self.drop()  # somebody on the way may have forgotten the others too
        raise no_answer(self.recipe.where, patience or self._patience) from None

    def _answer(self, link: Link, message: Message, reply: Any, once_more: bool = True, asking: bool = False) -> Any:
        refused = type(reply) is not int and isinstance(reply, ReplyError)
        if refused and is_full(reply):
            link.close()
            raise full(self.recipe.where, reply) from reply
        if link.reign is not self._reign:
            link.close()
            raise outdated(self.recipe.where)
        self._put_back(link)
        return self._refused(message, reply, once_more, asking) if refused else reply

    def _put_back(self, link: Link) -> None:
        if link.era is self._era:
            self._idle.append(link)
            if self._pool.waiting:
                self._pool.serve()
            if link.used > self._pool.tidy_at:
                self._pool.tidy()
        else:
            link.close()

    def _take(self, patience: float | None, urgent: bool = True) -> Link:
        """Return an idle connection that should still be open, or a new one.

        Args:
            patience: seconds to wait for it; None for as long as for a reply.
            urgent: as for `Pool.take`.

        Raises:
            NoRoom: there was none in time.
        """
        patience = patience or self._patience
        end = monotonic() + patience
        refusal: NoRoom | None = None
        while True:
            found = self._pool.take(urgent, end)
            if self._closed:
                raise StoreError("this connection was closed: connect again")
            if found is None:
                raise refusal or no_room(self.recipe.where, self.recipe.most, patience)
            if type(found) is Place:
                try:
                    return self._made(found, end)
                except NoRoom as error:
                    refusal = error
                    self._pool.server_is_full(found)
                except BaseException:
                    self._pool.free(found)
                    raise
            else:
                link: Link = found
                if link.era is self._era:
                    return link
                link.close()

    def _made(self, place: Place, end: float) -> Link:
        era, reign = self._era, self._reign  # of before: who connects may be led to the old one
        link = Link(self.recipe, max(SHORTEST, end - monotonic()), era, self._looking, place)
        link.reign = reign
        self._meet(link, max(SHORTEST, end - monotonic()))
        if self._closed:  # meanwhile: whoever closed has said already that this claim leaves
            link.close()
            raise StoreError("this connection was closed: connect again")
        self._pool.server_has_room()
        return link

    def _meet(self, link: Link, seconds: float) -> None:
        """See whether a new connection leads to another primary than those before it.

        Raises:
            NoRoom: the server has too many connections, and ends this one.
        """
        try:
            reply = link.ask(IDENTITY, seconds)
            if isinstance(reply, ReplyError) and is_full(reply):
                raise full(self.recipe.where, reply)
        except BaseException as error:
            link.close()
            if isinstance(error, ValueError):
                raise garbled(self.recipe.where, error) from None
            if isinstance(error, OSError):
                raise unreachable(self.recipe.where, error) from error
            raise
        if self._identity.differs(reply):
            self.distrust()
            link.era, link.reign = self._era, self._reign

    def _refused(self, message: Message, error: ReplyError, once_more: bool, asking: bool) -> Any:
        code = code_of(error)
        if code == "NOSCRIPT":
            return self.ask(message._replace(command=with_source(message.command)), asking=asking)
        if code == "OOM" and (excepted := without_memory(message.command)) is not None:
            return self.ask(message._replace(command=excepted), asking=asking)
        if code == "READONLY":
            self.drop()  # after a fail-over the old primary is a replica; connecting anew finds the new one
            if once_more:
                return self.ask(message, once_more=False)
        return refuse(error, self.recipe.where, message.line)

    def distrust(self) -> None:
        """There is another primary: what is connected leads to the old one."""
        self._reign = object()
        self.drop()
        self.moved()

    def drop(self) -> None:
        """Close the connections that nobody uses now, and the others when they come back."""
        self._era = object()
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:
                break  # another thread took the last one

    def rest(self) -> None:
        """Close the connections that nobody uses, but for one."""
        self._pool.rest()

    def close(self) -> None:
        """Close all connections."""
        self._closed = True
        self._pool.close()
        self.drop()
        while self._late:
            for link in self._late.popitem()[1]:
                link.close()

    def reset(self) -> None:
        """In a forked child: forget the parent's connections."""
        self._pool.reset()
        self.close()
        self._pool.reset()
        self._closed = False

    def beside(self, where: str, patience: float) -> "Wire":
        """Return connections to another server of the same group, by its host and port; the caller closes them."""
        return Wire(beside(self.recipe, where, patience))

    def batches(self, claims: Sequence[Claim], most: int) -> list[Sequence[Claim]]:
        """Return which claims may be renewed by one call."""
        return [claims[start : start + most] for start in range(0, len(claims), most)]

    def node_of(self, line: str) -> None:
        """Return the node that a line lives on: there is one."""

    def at(self, node: None) -> "Wire":
        """Return the connections to a node."""
        return self

    def look_again_soon(self) -> None:
        """There is no map to look at again."""
