"""Connections of threads: one command out, one reply in, with as little as possible in between."""

import os
import socket
import struct
from collections.abc import Sequence
from typing import Any, NoReturn
from uuid import uuid4

from interlock.claims import Claim
from interlock.errors import StoreError
from interlock.stores.native import compiled
from interlock.stores.redis.clients import Dialer
from interlock.stores.redis.message import Message, NoAnswer, broken, no_answer, unreachable
from interlock.stores.redis.problems import code_of, refuse
from interlock.stores.redis.resp import MISSING, Push, ReplyError, ended_by, pack, parser
from interlock.stores.redis.scripts import with_source, without_memory

ASKING = pack("ASKING")
native = compiled("interlock.stores.redis._exchange")
MOST = 65536  # bytes taken at a time


class Link:
    """One connection.

    Attributes:
        sock: the socket; the library has connected it and logged in.
        plain: its file, for the compiled way; -1 with TLS, or if there is none.
        unsure: True if an interrupt left open how many replies are still to come.
        late: True if a reply did not come in time.
        era: of the wire, when it was made.
    """

    __slots__ = ("_connection", "era", "late", "parser", "plain", "sock", "unsure", "where")

    def __init__(self, recipe: Dialer, patience: float | None = None, era: object = None) -> None:
        self.where = recipe.where
        self.era = era
        self._connection = recipe.connection(patience)
        try:
            self._connection.connect()
        except Exception as error:
            self._connection.disconnect()
            raise unreachable(recipe.where, error) from error
        self.sock: socket.socket = self._connection._sock
        self.parser = parser()
        self.unsure = False
        self.late = False
        self.plain = -1
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.be_patient(recipe.patience)
        if native is not None and self.sock.gettimeout() is None:
            self.plain = self.sock.fileno()

    def be_patient(self, seconds: float) -> None:
        """Set how long to wait for a reply."""
        sock = self.sock
        sock.settimeout(None)
        if type(sock) is not socket.socket or not os.get_blocking(sock.fileno()):
            sock.settimeout(seconds)  # TLS; or a library such as gevent, which waits in its own way
            return
        # The kernel keeps the time: Python's own time-outs cost a system call more for each send and each receive.
        whole = int(seconds)
        limit = struct.pack("@ll", whole, int((seconds - whole) * 1e6))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def ask(self, command: bytes) -> Any:
        """Send a command and return the reply, which may be a ReplyError."""
        if self.unsure:
            return self._ask_anew(command)
        self.sock.sendall(command)
        return self.rest(self.sock.recv(MOST))

    def rest(self, data: bytes) -> Any:
        """Return the reply that begins with `data`."""
        while True:
            if not data:
                raise ConnectionResetError("closed by the server")
            self.parser.feed(data)
            while True:
                reply = self.parser.next()
                if reply is MISSING:
                    break
                if type(reply) is not Push:
                    return reply
            data = self.sock.recv(MOST)

    def _ask_anew(self, command: bytes) -> Any:
        """As `ask`, when there may be older replies: a mark after the command tells which one is its own."""
        mark = uuid4().hex.encode()
        self.sock.sendall(command + pack("ECHO", mark))
        last = None
        reply = self.rest(self.sock.recv(MOST))
        while reply != mark:
            last, reply = reply, self.parser.next()
            if reply is MISSING:
                reply = self.rest(self.sock.recv(MOST))
        self.unsure = False
        return last

    def close(self) -> None:
        """Close the socket; a forked child closes its copy only."""
        self.plain = -1
        try:
            self.sock.close()
        except OSError:
            pass
        self._connection._sock = None


class Wire:
    """The connections to one server, for threads.

    Args:
        recipe: how to make them.
    """

    def __init__(self, recipe: Dialer) -> None:
        self.recipe = recipe
        self._idle: list[Link] = []
        self._left: dict[str, Link] = {}
        self._era = object()  # another one since a connection ended: those that were open then have ended too
        self._closed = False

    def exchange(self, start: bytes, line: str, id: str) -> Any:
        """As `ask`, on the shortest way: most replies are one number, on a connection that is open already.

        Args:
            start: the command up to its last word.
            line: as in `Message`.
            id: of the claim that it is about, its last word.
        """
        try:
            link = self._idle.pop()
        except IndexError:
            return self.ask(Message(ended_by(start, id), line, id))
        if self._left or link.unsure or link.era is not self._era:
            self._idle.append(link)
            return self.ask(Message(ended_by(start, id), line, id))
        try:
            if link.plain >= 0:
                data = native.exchange(link.plain, start, id)
                if type(data) is not bytes:
                    self._idle.append(link)
                    return data
            else:
                link.sock.sendall(ended_by(start, id))
                data = link.sock.recv(MOST)
                if data[:1] == b":" and data[-1:] == b"\n":
                    self._idle.append(link)
                    return int(data[1:-2])
            reply = link.rest(data)
        except BaseException as error:
            self._ended(link, id, None, error)
        if type(reply) is list:
            self._idle.append(link)
            return reply
        return self._answer(link, Message(ended_by(start, id), line, id), reply)

    def ask(self, message: Message, once_more: bool = True, asking: bool = False) -> Any:
        """Send a command and return the reply.

        Raises:
            Unreachable: nothing was sent.
            UnknownOutcome: it was sent, and no reply came.
            Refused: the server's answer is no.
        """
        command, _, owner, last, patience = message
        link = self._left.pop(owner, None) if self._left and owner is not None else None
        if link is not None and link.late:
            if last:
                self._call_after(link, command)
            link.close()
            link = None
        if link is None:
            link = self._take(patience)
        try:
            if patience is not None:
                link.be_patient(patience)
            if asking:
                link.unsure = True
                reply = link.ask(ASKING + command)
            else:
                reply = link.ask(command)
            if patience is not None:
                link.be_patient(self.recipe.patience)
        except BaseException as error:
            self._ended(link, owner, patience, error)
        return self._answer(link, message, reply, once_more, asking)

    def _ended(self, link: Link, owner: str | None, patience: float | None, error: BaseException) -> NoReturn:
        """Decide what becomes of a connection on which no reply came, and raise why."""
        if isinstance(error, (BlockingIOError, TimeoutError)):
            link.late = True
            self._leave(link, owner)
            raise no_answer(self.recipe.where, patience or self.recipe.patience) from None
        if isinstance(error, OSError):
            link.close()
            self.drop()  # the others have probably ended too
            raise broken(self.recipe.where, error) from error
        link.unsure = True
        self._leave(link, owner)
        raise error

    def _answer(self, link: Link, message: Message, reply: Any, once_more: bool = True, asking: bool = False) -> Any:
        self._idle.append(link)
        if type(reply) is not int and isinstance(reply, ReplyError):
            return self._refused(message, reply, once_more, asking)
        return reply

    def _take(self, patience: float | None) -> Link:
        """Return an idle connection that should still be open, or a new one."""
        while True:
            try:
                link = self._idle.pop()
            except IndexError:
                break
            if link.era is self._era:
                return link
            link.close()
        if self._closed:
            raise StoreError("this connection was closed: connect again")
        return Link(self.recipe, patience, self._era)

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

    def _leave(self, link: Link, owner: str | None) -> None:
        if owner is None:
            link.close()
        else:
            self._left[owner] = link

    def _call_after(self, link: Link, command: bytes) -> None:
        """Send a command after one that had no answer, without waiting for it.

        If the server ever gets the first one, it gets this one right after it.
        """
        try:
            link.sock.sendall(command)
        except OSError:
            pass
        link.close()
        raise NoAnswer(f"{self.recipe.where} does not answer; the claim will go when its lease ends, if not before")

    def drop(self) -> None:
        """Close the connections that nobody uses now, and the others when they come back."""
        self._era = object()
        while self._idle:
            self._idle.pop().close()

    def close(self) -> None:
        """Close all connections."""
        self._closed = True
        self.drop()
        while self._left:
            self._left.popitem()[1].close()

    def reset(self) -> None:
        """In a forked child: forget the parent's connections."""
        self.close()
        self._closed = False

    def nodes(self) -> list[str]:
        """Return a key of each server that has some."""
        return [""]

    def batches(self, claims: Sequence[Claim], most: int) -> list[Sequence[Claim]]:
        """Return which claims may be renewed by one call."""
        return [claims[start : start + most] for start in range(0, len(claims), most)]
