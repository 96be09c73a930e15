# Generated from _async/connection.py by tools/unasync.py; change that one.
"""Connections to one server: connect, log in, send requests, subscribe, ask the Sentinels."""

import re
from collections.abc import Callable
from typing import Any

from interlock.core.errors import StoreError
from interlock.core.failures import Denied, NoAnswer, Refused, ended, no_answer
from interlock.drivers.redis_py import code_of
from interlock.runtime import _threads as rt
from interlock.runtime import clock, log
from interlock.stores.redis import _threads as sockets
from interlock.stores.redis.errors import garbled, refusal, see_it_is_there, unreachable
from interlock.stores.redis.library import answered, as_bytes, as_of_socket
from interlock.stores.redis.resp import (
    INCOMPLETE,
    Garbage,
    Parser,
    RedisCommand,
    Reply,
    ReplyError,
    begun,
    grants,
    only_message,
    only_number,
    pack,
)
from interlock.stores.redis.settings import Address, Settings
from interlock.stores.redis.wire import with_source

SENTINEL_TIMEOUT = 0.25  # seconds to wait for one of several Sentinels
_PRIMARY = re.compile(rb"role:master\b.*^master_replid:(\w+)", re.DOTALL | re.MULTILINE)


class LibraryStream:
    """A stream over a connection of the program's own class.

    Args:
        connection: a connection of redis-py or valkey-py.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._at_home = sockets.at_home()

    def send(self, data: bytes, deadline: float) -> None:
        """Send like `Stream.send`."""
        try:
            self._connection.send_packed_command([data], check_health=False)
        except Exception as error:
            raise as_of_socket(error) from error

    def receive(self, deadline: float) -> bytes:
        """Receive the next reply."""
        try:
            return as_bytes(sockets.read_reply(self._connection, max(0.0, deadline - clock.now())))
        except Exception as error:
            return answered(error)

    def send_and_close(self, data: bytes) -> None:
        """Send and close like `Stream.send_and_close`."""
        self._at_home(self._end, data)

    def close(self) -> None:
        """Close like `Stream.close`."""
        self._at_home(self._end, b"")

    def _end(self, data: bytes) -> None:
        try:
            if data:
                self.send(data, 0.0)
        except OSError:
            pass
        finally:
            self._connection.disconnect(True)


def answer_to(
    command: RedisCommand,
    reply: Reply,
    raw: Callable[[bytes, int, float], rt.Result[Reply]],
    deadline: float,
    where: str,
    io_timeout: float,
) -> Reply:
    """Return the answer to a request; send it again with its script's source if needed; wait for replicas if wanted.

    Args:
        command: the request.
        reply: its first reply.
        raw: sends bytes and returns a number of replies, like `RedisConnection.raw`.
        deadline: the end of the wait, by `clock.now`.
        where: the server, for messages.
        io_timeout: seconds to wait for a reply.

    Raises:
        Refused: the server refused the request.
        StoreError: like `raw`; too few replicas confirmed the grant.
    """
    told = reply[0] if command.replies > 1 else reply
    if type(told) is ReplyError and str(told).startswith("NOSCRIPT"):
        reply = raw(with_source(command.data), command.replies, deadline)
    if type(reply) is ReplyError:
        raise refusal(reply, where, command.line)
    if command.replicas and grants(reply):
        limit = str(int(io_timeout * 500))  # milliseconds: half of the time-out
        count = raw(pack("WAIT", str(command.replicas), limit), 1, deadline)
        see_it_is_there(count, command.replicas, where)
    return reply


class RedisConnection:
    """A connection for one request at a time, or for the messages of a channel.

    Attributes:
        trust: a value that the pool stores here.
        channel: the subscribed channel.
        message_start: as for `only_message`.
        deaf: the reason why the server or a proxy supports no subscription; None if it does.
        before_confirm: called before a subscription is confirmed.
    """

    def __init__(self, stream: "LibraryStream | sockets.Stream", where: str, io_timeout: float) -> None:
        self.stream = stream
        self._where = where
        self._io_timeout = io_timeout
        self._parser = Parser()
        self.trust: object = None
        self.channel = ""
        self.message_start = b""
        self.deaf: Refused | None = None
        self.before_confirm: Callable[[], rt.Result[None]] = rt.yield_to_loop

    def ask(self, command: RedisCommand, deadline: float) -> Reply:
        """Send like `Connection.ask`."""
        reply = self.raw(command.data, command.replies, deadline)
        if type(reply) is int and not command.replicas:  # the most common reply
            return reply
        return answer_to(command, reply, self.raw, deadline, self._where, self._io_timeout)

    def raw(self, data: bytes, replies: int, deadline: float) -> Reply:
        """Send, and return the reply, which may be a ReplyError; several replies as a list.

        Raises:
            ConnectionEnded, NoAnswer: the reply did not come.
        """
        try:
            self.stream.send(data, deadline)
            if replies != 1:
                return [self.next(deadline) for _ in range(replies)]
            data = self.stream.receive(deadline)
            number = only_number(data)
            return self._rest(data, deadline) if number is None else number
        except TimeoutError:
            raise no_answer(self._where, self._io_timeout) from None
        except Garbage as error:
            raise garbled(self._where, error) from None
        except OSError as error:
            raise ended(self._where, error) from error

    def next(self, deadline: float) -> Reply:
        """Return the next reply or message."""
        reply = self._parser.next()
        if reply is INCOMPLETE:
            return self._rest(self.stream.receive(deadline), deadline)
        return reply

    def _rest(self, data: bytes, deadline: float) -> Reply:
        while True:
            if not data:
                raise ConnectionResetError("closed by the server")
            self._parser.feed(data)
            if (reply := self._parser.next()) is not INCOMPLETE:
                return reply
            data = self.stream.receive(deadline)

    def abandon(self, undo: RedisCommand | None) -> None:
        """Close like `Connection.abandon`."""
        if undo is None:
            self.stream.close()
        else:
            self.stream.send_and_close(with_source(undo.data))  # with the source: nobody could answer NOSCRIPT

    def close(self) -> None:
        """Close like `Connection.close`."""
        self.stream.close()

    def receive(self, deadline: float) -> list[str]:
        """Receive like `Subscription.receive`."""
        try:
            message = self._parser.next() if self._parser.unread else INCOMPLETE
            if message is INCOMPLETE:
                data = self.stream.receive(deadline)
                text = None if self._parser.unread else only_message(data, self.message_start)
                if text is not None:
                    return [text.decode(errors="replace")]
                message = self._rest(data, deadline)
        except TimeoutError:
            raise no_answer(self._where, self._io_timeout) from None
        except (OSError, Garbage) as error:
            raise ended(self._where, error) from error
        if isinstance(message, ReplyError) and self.deaf is None:
            raise refusal(message, self._where)
        if type(message) is list and len(message) == 3 and message[0] == b"message":
            return [message[2].decode(errors="replace")]
        return []

    def confirm(self, deadline: float) -> None:
        """Subscribe again: the reply proves that the connection works, and a lost subscription is restored."""
        self.before_confirm()
        try:
            self.stream.send(pack("SUBSCRIBE", self.channel), deadline)
        except OSError as error:
            raise ended(self._where, error) from error


class Dialer:
    """Makes connections to one server, and notices a new primary at its address.

    If Sentinels watch the server, they provide the address.
    Source: https://redis.io/docs/latest/develop/reference/sentinel-clients/

    Args:
        settings: the settings of its connections.
        asks: True if INFO is the last command of a login; not at a Sentinel, where users need no right to it.

    Attributes:
        moved: called after another primary has taken over.
    """

    def __init__(self, settings: Settings, asks: bool = True) -> None:
        self.settings = settings
        self._asks = asks
        self._silent = False
        self._primary: bytes | None = None
        self._address: Address | str = settings.address
        self.moved: Callable[[], object] = lambda: None

    def open(self, deadline: float, looks: bool = True) -> RedisConnection:
        """Return a connection after login.

        Args:
            deadline: the end of the wait, by `clock.now`.
            looks: True if replies are expected soon.

        Raises:
            StoreError: the server is unreachable, or refuses the login.
        """
        settings = self.settings
        deadline = min(deadline, clock.now() + settings.connect_timeout)
        address = settings.address
        if settings.sentinel is not None:
            address = self._primary_by_sentinels(settings.sentinel, deadline)
        self._address = address
        connection = self._connected(address, deadline, looks)
        try:
            info = self._log_in(connection, deadline)
        except BaseException:
            connection.close()
            raise
        found = _PRIMARY.search(info) if isinstance(info, bytes) else None
        if found is not None:
            before, self._primary = self._primary, found[1]
            if before is not None and before != found[1]:
                self.moved()
        return connection

    def _connected(self, address: Address | str, deadline: float, looks: bool) -> RedisConnection:
        try:
            if self.settings.make is not None:
                stream: LibraryStream | sockets.Stream = self._of_library(
                    self.settings.make(address), deadline
                )
            else:
                context = None if self.settings.tls is None else self.settings.tls.context
                stream = sockets.open_stream(address, context, deadline, self.settings.io_timeout, looks)
        except (OSError, ValueError) as error:
            raise unreachable(self.settings.where, error) from error
        return RedisConnection(stream, self.settings.where, self.settings.io_timeout)

    def _of_library(self, connection: Any, deadline: float) -> LibraryStream:
        try:
            rt.within(max(0.0, deadline - clock.now()), connection.connect)
        except Exception as error:
            raise as_of_socket(error) from error
        return LibraryStream(connection)

    def _log_in(self, connection: RedisConnection, deadline: float) -> Reply:
        """Log in; return the reply to INFO, if requested."""
        settings = self.settings
        login: tuple[str, ...] = tuple(each for each in (settings.username, settings.password) if each is not None)
        if settings.credentials is not None:
            login = tuple(rt.offload(settings.credentials))
        commands = [("AUTH", *login)] if login else []
        if settings.client_name:
            commands.append(("CLIENT", "SETNAME", settings.client_name))
        if settings.db:
            commands.append(("SELECT", str(settings.db)))
        if self._asks:
            commands.append(("INFO", "replication"))
        if not commands:
            return None
        data = b"".join([pack(*each) for each in commands])
        try:
            replies = connection.raw(data, len(commands), deadline)
        except NoAnswer as error:
            raise unreachable(self.settings.where, TimeoutError()) from error
        replies = replies if len(commands) > 1 else [replies]
        for reply, (name, *_) in zip(replies, commands, strict=True):
            if not isinstance(reply, ReplyError) or name == "CLIENT":
                continue
            if name != "INFO" or code_of(reply) not in ("NOPERM", "UNKNOWN"):  # a proxy may lack INFO
                raise unreachable(self.settings.where, reply) from reply
        return replies[-1]

    def subscribe(self, channel: str, deadline: float) -> RedisConnection:
        """Return a subscription that the server has confirmed, or a deaf one.

        Raises:
            StoreError: the server is unreachable or refuses.
        """
        connection = self.open(deadline, looks=False)
        connection.channel, connection.message_start = channel, begun(1, "message", channel) + b"$"
        try:
            connection.ask(RedisCommand(pack("SUBSCRIBE", channel)), deadline)
        except BaseException as error:
            if not isinstance(error, Refused) or error.code != "UNKNOWN":
                connection.close()
                raise
            connection.deaf = error
        return connection

    def check(self) -> None:
        """Ask the Sentinels whether the primary has changed."""
        if self.settings.sentinel is not None:
            limit = clock.now() + self.settings.io_timeout
            try:
                address = self._primary_by_sentinels(self.settings.sentinel, limit)
            except StoreError:
                return  # the open connections may still work
            if address != self._address:
                self._address = address
                self.moved()

    def _primary_by_sentinels(self, sentinel: Settings, deadline: float) -> Address:
        """Return the primary's address from the Sentinel with the latest fail-over (highest epoch).

        Raises:
            StoreError: no Sentinel knows the primary.
        """
        answers = []
        failure: StoreError | None = None
        for node in self.settings.nodes:
            try:
                answers += self._ask_sentinel(sentinel, node, deadline)
            except Denied:
                raise
            except StoreError as error:
                failure = error
        if answers:
            self._silent = False
            return max(answers)[1]
        if not self._silent:
            self._silent = True
            log.warn("No Sentinel of %r replies, so a new primary would go unnoticed.", self.settings.service)
        text = f"no primary found: {failure}" if failure else "no primary found"
        raise unreachable(self.settings.where, OSError(f"{text}. Check that its Sentinels run and see a primary"))

    def _ask_sentinel(self, sentinel: Settings, node: Address, deadline: float) -> list[tuple[int, Address]]:
        """Return the epoch and address of the primary, if a Sentinel knows it."""
        limit = clock.now() + (SENTINEL_TIMEOUT if len(self.settings.nodes) > 1 else sentinel.io_timeout)
        dialer = Dialer(sentinel.at(node), asks=False)
        connection = dialer.open(min(deadline, limit))
        try:
            reply = connection.ask(RedisCommand(pack("SENTINEL", "MASTERS")), min(deadline, limit))
        finally:
            connection.close()
        found = []
        for flat in reply:
            facts = dict(zip(flat[::2], flat[1::2], strict=False))
            if facts.get(b"name") == self.settings.service.encode():
                found.append((int(facts.get(b"config-epoch", 0)), (facts[b"ip"].decode(), int(facts[b"port"]))))
        return found
