"""The compiled exchange of a command and its reply, on sockets without a server."""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from functools import partial
from time import sleep
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.stores.redis.bells import Bells
from interlock.stores.redis.near import TURNS, Near, fresh_channel
from interlock.stores.redis.resp import ended_by
from interlock.stores.redis.wire import native

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("INTERLOCK_PURE")), reason="INTERLOCK_PURE leaves the compiled exchange out"
)
START = b"*3\r\n$4\r\nECHO\r\n"


def test_it_is_there() -> None:
    assert native is not None, "it was not built: is there a C compiler?  ./dev test installs the package again"


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


def answer(theirs: socket.socket, reply: bytes, after: float = 0.0, size: int = 65536) -> threading.Thread:
    """Read a command in a thread, and answer it."""

    def play() -> None:
        got = theirs.recv(size)
        while not got.endswith(b"id\r\n"):
            got += theirs.recv(size)
        sleep(after)
        theirs.sendall(reply)

    thread = threading.Thread(target=play)
    thread.start()
    return thread


@given(st.integers(-(10**16), 10**17), st.text(st.characters(codec="utf-8"), max_size=40))
def test_a_number_comes_back_and_the_command_arrives_whole(number: int, id: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b":%d\r\n" % number)
        assert native.exchange(ours.fileno(), START, id) == number
        assert theirs.recv(4096) == ended_by(START, id)


LISTS = st.lists(st.one_of(st.integers(-(10**16), 10**17), st.binary(max_size=40)), min_size=1, max_size=40)


def on_the_wire(those: list[int | bytes]) -> bytes:
    parts = [b":%d\r\n" % each if isinstance(each, int) else b"$%d\r\n%s\r\n" % (len(each), each) for each in those]
    return b"*%d\r\n" % len(those) + b"".join(parts)


@given(LISTS)
def test_a_list_of_numbers_and_words_comes_back(those: list[int | bytes]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(on_the_wire(those))
        assert native.exchange(ours.fileno(), START, "id") == those


@given(LISTS, st.data())
def test_a_part_of_a_list_and_more_than_one_come_back_as_they_are(
    those: list[int | bytes], data: st.DataObject
) -> None:
    whole = on_the_wire(those)
    reply = data.draw(st.one_of(st.integers(1, len(whole) - 1).map(lambda size: whole[:size]), st.just(whole * 2)))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(reply)
        assert native.exchange(ours.fileno(), START, "id") == reply


@pytest.mark.parametrize(
    "reply",
    [
        b"-ERR no\r\n",
        b"*0\r\n",
        b"*-1\r\n",
        b"*1\r\n$-1\r\n",
        b"*1\r\n+OK\r\n",
        b"*2\r\n:1\r\n",
        b"*1\r\n$2\r\nabc\r\n",
        b"*1\r\n*1\r\n:1\r\n",
        b"$2\r\nid\r\n",
        b":1\r\n:2\r\n",
        b":12",
        b":\r\n",
        b":1x\r\n",
        b"+OK\r\n",
        b":-\r\n",
    ],
)
def test_any_other_reply_comes_back_as_it_is(pair: tuple[socket.socket, socket.socket], reply: bytes) -> None:
    ours, theirs = pair
    theirs.sendall(reply)
    assert native.exchange(ours.fileno(), START, "id") == reply


@pytest.mark.parametrize("after", [0.0, 0.01])
def test_it_waits_for_the_reply(pair: tuple[socket.socket, socket.socket], after: float) -> None:
    ours, theirs = pair
    for _ in range(20):  # late so often that it gives up looking for them before it sleeps
        thread = answer(theirs, b":7\r\n", after)
        assert native.exchange(ours.fileno(), START, "id") == 7
        thread.join()


def test_a_command_larger_than_the_socket_takes_at_once(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    thread = answer(theirs, b":7\r\n", size=1000)
    assert native.exchange(ours.fileno(), b"x" * 1_000_000, "id") == 7
    thread.join()


def test_the_end_of_the_connection_is_an_empty_reply_or_an_error(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    theirs.shutdown(socket.SHUT_WR)
    assert native.exchange(ours.fileno(), START, "id") == b""
    theirs.close()
    with pytest.raises(OSError):
        native.exchange(ours.fileno(), START, "id")


def test_no_reply_in_time_is_an_error(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, _ = pair
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", 0, 20_000))
    with pytest.raises(BlockingIOError):
        native.exchange(ours.fileno(), START, "id")


def interrupted(handler: Callable[[int, Any], object], wait: Callable[[], Any]) -> Any:
    """Wait in the main thread, and let a signal come meanwhile."""
    before = signal.signal(signal.SIGUSR1, handler)
    main = threading.main_thread().ident
    assert main is not None
    poke = threading.Timer(0.05, lambda: signal.pthread_kill(main, signal.SIGUSR1))
    poke.start()
    try:
        return wait()
    finally:
        poke.join()
        signal.signal(signal.SIGUSR1, before)


def raise_interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def test_a_signal_does_not_end_the_wait_unless_its_handler_raises(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    came: list[int] = []
    thread = answer(theirs, b":7\r\n", 0.2)
    fd = ours.fileno()
    assert interrupted(lambda number, _: came.append(number), lambda: native.exchange(fd, START, "id")) == 7
    thread.join()
    assert came == [signal.SIGUSR1]
    with pytest.raises(KeyboardInterrupt):
        interrupted(raise_interrupt, lambda: native.exchange(fd, START, "id"))
    with pytest.raises(KeyboardInterrupt):
        interrupted(raise_interrupt, lambda: native.hear(fd, fd, -1, 0, 60.0))


def post(ours: socket.socket, theirs: socket.socket, reply: bytes) -> Any:
    """Post a command whose reply is there already, until it is looked for: after many late ones it is not at once."""
    for _ in range(250):
        theirs.sendall(reply)
        got = native.post(ours.fileno(), START, "id")
        if got is not None:
            return got
        assert ours.recv(4096) == reply
    return None


@pytest.mark.parametrize("late", [0, 1, 20])
def test_a_loop_gets_what_comes_at_once_and_waits_for_the_rest_itself(
    pair: tuple[socket.socket, socket.socket], late: int
) -> None:
    ours, theirs = pair
    ours.setblocking(False)
    for _ in range(late):
        assert native.post(ours.fileno(), START, "id") is None
    assert post(ours, theirs, b":7\r\n") == 7
    assert post(ours, theirs, b"-ERR no\r\n") == b"-ERR no\r\n"
    theirs.shutdown(socket.SHUT_WR)
    assert native.post(ours.fileno(), START, "id") is None


def test_a_loop_does_not_wait_for_a_socket_that_takes_nothing(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, _ = pair
    ours.setblocking(False)
    with pytest.raises(BlockingIOError):
        native.post(ours.fileno(), b"x" * 10_000_000, "id")


MESSAGE = b"*3\r\n$7\r\nmessage\r\n$4\r\nhere\r\n$5\r\nme 12\r\n"


@pytest.mark.parametrize(
    ("data", "heard"),
    [
        (MESSAGE, [("me", 12)]),
        (MESSAGE + MESSAGE.replace(b"me 12", b"him 0"), [("me", 12), ("him", 0)]),
        (MESSAGE[:-1], MESSAGE[:-1]),
        (MESSAGE + MESSAGE[:9], MESSAGE + MESSAGE[:9]),
        (b"*3\r\n$9\r\nsubscribe\r\n$4\r\nhere\r\n:1\r\n", b"*3\r\n$9\r\nsubscribe\r\n$4\r\nhere\r\n:1\r\n"),
        (MESSAGE.replace(b"me 12", b"me 1x"), MESSAGE.replace(b"me 12", b"me 1x")),
        (MESSAGE.replace(b"me 12", b"me_12"), MESSAGE.replace(b"me 12", b"me_12")),
        (MESSAGE.replace(b"me 12", b"\xff\xfe 12"[:5]), MESSAGE.replace(b"me 12", b"\xff\xfe 12"[:5])),
        (MESSAGE.replace(b"$5", b"$99999999999"), MESSAGE.replace(b"$5", b"$99999999999")),
    ],
)
def test_what_is_heard(pair: tuple[socket.socket, socket.socket], data: bytes, heard: Any) -> None:
    ours, theirs = pair
    theirs.sendall(data)
    assert native.hear(ours.fileno(), -1, -1, 0, 1.0) == heard


def test_hearing_ends_in_time_when_poked_and_when_the_connection_ends(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    read, write = os.pipe()
    assert native.hear(ours.fileno(), read, -1, 0, 0.01) is None
    os.write(write, b"!")
    assert native.hear(ours.fileno(), read, -1, 0, 60.0) is False
    os.read(read, 1)
    theirs.close()
    assert native.hear(ours.fileno(), read, -1, 0, 60.0) == b""
    os.close(read)
    os.close(write)


@pytest.mark.parametrize("arguments", [(), ("x",), (1, 2, 3, 4, 5, 6), (0, "start", "id"), (0, b"start", b"id")])
def test_wrong_arguments_are_an_error_and_no_crash(arguments: tuple[Any, ...]) -> None:
    for function in (native.exchange, native.post, native.hear, native.word):
        with pytest.raises(TypeError):
            function(*arguments)


def test_the_words_of_neighbours_are_heard_too(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    channel = fresh_channel()
    bells = Bells()
    near, other = Near(bells), Near(bells)
    near.open(channel)
    other.open(fresh_channel())
    hear = partial(native.hear, ours.fileno(), -1, near.fd, near.user)
    assert hear(0.01) is None
    assert other.let_in("b1 7", TURNS + channel.encode())
    assert other.let_in("no word", TURNS + channel.encode())
    assert hear(60.0) == ("b1", 7)
    assert hear(0.01) is None
    theirs.sendall(MESSAGE)
    assert hear(60.0) == [("me", 12)]
    other.close()
    near.close()
