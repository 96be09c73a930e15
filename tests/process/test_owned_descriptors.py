"""A descriptor's number that means another file is recognized, with and without the socket cookies of Linux."""

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock.runtime.process import SO_COOKIE, OwnedDescriptor

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="on Windows a socket is not a descriptor")


class OldKernelSocket(socket.socket):
    """A socket on a kernel that does not know the option."""

    def getsockopt(self, level: int, option: int, *size: int) -> Any:
        if option == SO_COOKIE:
            raise OSError(errno.ENOPROTOOPT, "Protocol not available")
        return super().getsockopt(level, option, *size)


class OtherOptionSocket(socket.socket):
    """A socket on a processor where the number of the option means another one, which is an int."""

    def getsockopt(self, level: int, option: int, *size: int) -> Any:
        return bytes(4) if option == SO_COOKIE else super().getsockopt(level, option, *size)


@pytest.fixture(params=[socket.socket, OldKernelSocket, OtherOptionSocket], ids=["kernel", "old", "other"])
def sock(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    """One end of a connected pair, on several kernels."""
    kind: type[socket.socket] = request.param
    ours, peer = socket.socketpair()
    with kind(fileno=ours.detach()) as made, peer:
        made.sendall(b"connected")
        assert peer.recv(100) == b"connected"
        yield made


def assert_foreign(file: OwnedDescriptor, owner: socket.socket) -> None:
    with pytest.raises(ConnectionResetError):
        file.check()
    assert owner.fileno() == -1  # detached: its `close` closes no foreign file
    assert not file.is_ours()


def test_an_open_socket_is_ours(sock: socket.socket) -> None:
    file = OwnedDescriptor(sock.fileno(), sock)
    assert file.is_ours()
    file.check()
    assert sock.fileno() >= 0


def test_a_closed_number_is_not_ours(sock: socket.socket) -> None:
    file = OwnedDescriptor(sock.fileno(), sock)
    os.close(sock.fileno())
    assert_foreign(file, sock)


def test_another_socket_with_the_number_is_not_ours(sock: socket.socket) -> None:
    file, number = OwnedDescriptor(sock.fileno(), sock), sock.fileno()
    ends = socket.socketpair()
    os.dup2(ends[0].fileno(), number)
    assert_foreign(file, sock)
    with socket.socket(fileno=number) as left, ends[0], ends[1]:
        left.sendall(b"still open")
        assert ends[1].recv(100) == b"still open"


def test_a_regular_file_with_the_number_is_not_ours(sock: socket.socket, tmp_path: Path) -> None:
    file, number = OwnedDescriptor(sock.fileno(), sock), sock.fileno()
    with (tmp_path / "other").open("wb") as other:
        os.dup2(other.fileno(), number)
    assert_foreign(file, sock)
    assert os.write(number, b"still open") == 10
    os.close(number)


def test_a_duplicate_of_the_socket_is_ours(sock: socket.socket) -> None:
    """Its bytes reach the same peer, so a program may move a number away and back."""
    file = OwnedDescriptor(sock.fileno(), sock)
    away = os.dup(sock.fileno())
    os.close(sock.fileno())
    os.dup2(away, sock.fileno())
    os.close(away)
    assert file.is_ours()


def test_a_forked_child_closes_only_its_copy(sock: socket.socket) -> None:
    file = OwnedDescriptor(sock.fileno(), sock)
    child = os.fork()
    if child == 0:
        ours = file.is_ours()
        sock.close()
        os._exit(0 if ours and not file.is_ours() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert file.is_ours()


def test_without_an_owner_the_number_itself_is_compared(tmp_path: Path) -> None:
    """As for the sockets of client libraries in C."""
    ends = socket.socketpair()
    with ends[0], ends[1], (tmp_path / "other").open("wb") as other:
        file = OwnedDescriptor(ends[0].fileno())
        assert file.is_ours()
        os.dup2(other.fileno(), ends[0].fileno())
        assert not file.is_ours()
        assert ends[0].fileno() >= 0
