"""What the processes of a host say to each other, without the server."""

from __future__ import annotations

import gc
import os
import resource
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis_bells import Bell, hung

from interlock.protocols.queue import Told
from interlock.stores.redis import near
from interlock.stores.redis.bells import Bells
from interlock.stores.redis.near import CHANNEL, HEIRS, TURNS, Near, fresh_channel


class Process:
    """What a process has of a store: bells, and what its neighbours say."""

    def __init__(self) -> None:
        self.bells = Bells()
        self.near = Near(self.bells)
        self.channel = fresh_channel()
        self.near.open(self.channel)

    def waits_behind(self, before: Process, claim: str, id: str, fence: int) -> Bell:
        """Let a claim wait as the heir of one of another process."""
        bell = hung(self.bells, id)
        assert self.bells.follow(claim, id, fence)
        self.near.follow(before.channel.encode(), claim, id, fence)
        return bell

    def releases(self, claim: str) -> bool:
        """Release a grant; tell whether an heir elsewhere was told."""
        self.near.hear_heirs()
        heir = self.bells.pass_on(claim)
        return heir is not None and self.near.let_in(f"{heir[0]} {heir[1]}", heir[2])


@pytest.fixture(params=["compiled", "pure"])
def process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Process]]:
    """Makes processes that read words in the compiled way, or the other."""
    if request.param == "pure":
        monkeypatch.setattr(near, "native", None)
    elif near.native is None:
        assert os.environ.get("INTERLOCK_PURE"), "the compiled part is not there"
    made: list[Process] = []

    def make() -> Process:
        made.append(Process())
        return made[-1]

    yield make
    for each in made:
        each.near.close()


def test_who_leaves_lets_in_the_heir_of_another_process(process: Callable[[], Process]) -> None:
    one, other = process(), process()
    bell = other.waits_behind(one, "a1", "b1", 7)
    assert one.releases("a1") is True
    assert bell.words == []
    other.near.hear_turns()
    assert bell.words == [Told("b1", 7)]
    assert one.releases("a1") is False


def test_several_words_are_taken_at_once(process: Callable[[], Process]) -> None:
    one, other = process(), process()
    bells = [other.waits_behind(one, f"a{number}", f"b{number}", number) for number in (1, 2, 3)]
    assert all(one.releases(f"a{number}") for number in (1, 2, 3))
    other.near.hear_turns()
    assert [bell.words for bell in bells] == [[Told(f"b{number}", number)] for number in (1, 2, 3)]


def test_the_last_one_to_say_so_is_the_heir(process: Callable[[], Process]) -> None:
    one, other, third = process(), process(), process()
    other.waits_behind(one, "a1", "b1", 7)
    bell = third.waits_behind(one, "a1", "c1", 8)  # b1 gave up
    assert one.releases("a1") is True
    third.near.hear_turns()
    assert bell.words == [Told("c1", 8)]


def test_an_heir_whose_process_has_gone_cannot_be_told(process: Callable[[], Process]) -> None:
    one, other = process(), process()
    other.waits_behind(one, "a1", "b1", 7)
    other.near.close()
    assert one.releases("a1") is False


def test_who_does_not_hear_is_not_told(process: Callable[[], Process]) -> None:
    one, other = process(), process()
    one.near.close()
    bell = other.waits_behind(one, "a1", "b1", 7)
    assert one.releases("a1") is False
    assert bell.words == []


def test_a_full_box_is_no_reason_to_wait(process: Callable[[], Process]) -> None:
    one, other = process(), process()
    for number in range(2000):  # more than any system keeps
        other.near.follow(one.channel.encode(), f"a{number}", f"b{number}", 7)
    assert one.releases("a0") is True
    assert one.releases("a1999") is False


def test_words_of_another_user_are_not_heard(process: Callable[[], Process]) -> None:
    one, other = process(), process()
    bell = other.waits_behind(one, "a1", "b1", 7)
    one.near.user += 1
    assert one.releases("a1") is False
    one.near.user -= 1
    bell = other.waits_behind(one, "a2", "b2", 8)
    assert one.releases("a2") is True
    other.near.user += 1
    other.near.hear_turns()
    assert bell.words == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root may say that it is somebody else")
def test_a_word_that_another_user_sent_is_not_heard(process: Callable[[], Process]) -> None:
    one, other = process(), process()
    bell = other.waits_behind(one, "a1", "b1", 7)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        stranger.bind(b"\0interlock-stranger-%d" % os.getpid())
        for user, heard in ((12345, []), (os.getuid(), [Told("b1", 7)])):
            sender = (socket.SOL_SOCKET, socket.SCM_CREDENTIALS, struct.pack("3i", os.getpid(), user, 0))
            stranger.sendmsg([b"b1 7"], [sender], 0, TURNS + other.channel.encode())
            other.near.hear_turns()
            assert bell.words == heard


@pytest.mark.parametrize("other_place", [f"{CHANNEL}:", f"{CHANNEL}0123456789ab:", "interlock:wake:"])
def test_only_neighbours_are_told(process: Callable[[], Process], other_place: str) -> None:
    one = process()
    channel = other_place + "0123456789abcdef0123456789abcdef"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as far:
        far.bind(HEIRS + channel.encode())
        far.setblocking(False)
        one.near.follow(channel.encode(), "a1", "b1", 7)
        with pytest.raises(BlockingIOError):
            far.recv(512)


WHO = b"\0interlock-test-%d" % os.getpid()
WORDS: list[tuple[bytes, Any]] = [
    (b"b1 7", ("b1", 7)),
    (b"a1 b1 7", ("a1", ("b1", 7, WHO))),
    (b"b1 999999999999999999", ("b1", 999_999_999_999_999_999)),
    (b"b1 9999999999999999999", None),
    (b"", None),
    (b" ", None),
    (b"7", None),
    (b"b1 ", None),
    (b" 7", None),
    (b"b1 x", None),
    (b"b1 -7", None),
    (b"b1 7 ", None),
    (b"b1  7", None),
    (b"a1 b1 c1 7", None),
    (b"\xff 7", None),
    (b"b1 \xb2", None),
    (b"b1\n 7", None),
    (b"b1 7\n", None),
    (b"b" * 600 + b" 7", None),
]


@pytest.mark.parametrize(("data", "word"), WORDS, ids=[str(data[:20]) for data, _ in WORDS])
def test_what_is_a_word(process: Callable[[], Process], data: bytes, word: Any) -> None:
    one = process()
    assert one.near.turns is not None
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as neighbour:
        neighbour.bind(WHO)
        neighbour.sendto(data, TURNS + one.channel.encode())
        neighbour.sendto(b"z1 1", TURNS + one.channel.encode())
    for expected in (() if word is None else (word,)) + (("z1", 1), None):
        assert near._word(one.near.turns, os.getuid()) == expected


def test_words_of_the_wrong_kind_are_dropped(process: Callable[[], Process]) -> None:
    one, other = process(), process()
    bell = other.waits_behind(one, "a1", "b1", 7)
    assert one.near.turns is not None
    one.near.turns.sendto(b"a1 b1 7", TURNS + other.channel.encode())
    one.near.turns.sendto(b"b1 7", HEIRS + other.channel.encode())
    other.near.hear_turns()
    other.near.hear_heirs()
    assert bell.words == []
    assert not other.bells._abroad


def test_where_it_is_impossible_nothing_is_heard_and_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near, "place", lambda: "")
    one = Near(Bells())
    one.open(near.fresh_channel())
    assert one.fd == -1
    one.follow(b"interlock:wake::0", "a1", "b1", 7)
    one.hear_heirs()
    one.hear_turns()
    assert one.let_in("b1 7", WHO) is False
    one.close()


def test_a_name_that_is_taken_is_no_failure(process: Callable[[], Process]) -> None:
    one = process()
    other = Near(Bells())
    other.open(one.channel)
    assert other.fd == -1


def test_without_files_nothing_is_heard_and_nothing_is_said_about_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    one = Near(Bells())
    with socket.socket() as last:
        resource.setrlimit(resource.RLIMIT_NOFILE, (last.fileno() + 1, hard))
        try:
            one.open(fresh_channel())
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert one.fd == -1
    gc.collect()
    assert capfd.readouterr().err == ""


def test_what_was_closed_stays_closed_but_in_a_forked_child(process: Callable[[], Process]) -> None:
    one = process()
    one.near.close()
    one.near.open(one.channel)
    assert one.near.fd == -1
    one.near.reset()
    one.near.open(one.channel)
    assert one.near.fd >= 0


def test_a_process_that_became_another_user_leaves_it_to_the_server(
    process: Callable[[], Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = process(), process()
    other.waits_behind(one, "a1", "b1", 7)
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    assert one.releases("a1") is False
