"""What the Sentinels say: the latest fail-over counts, silence changes nothing, whoever is silent is left alone."""

from types import SimpleNamespace
from typing import Any

import pytest
import redis

from interlock._redis.clients import OneServer
from interlock._redis.resp import ReplyError
from interlock._redis.sentinels import REST, Sentinels

FIRST, SECOND, THIRD = "first", "second", "third"


@pytest.fixture
def clients() -> list[Any]:
    """What stands for the clients of three Sentinels, in the library's order."""
    return [FIRST, SECOND, THIRD]


@pytest.fixture
def sentinels(clients: list[Any]) -> Sentinels:
    """What is known of the service `books`."""
    pool = SimpleNamespace(service_name="books", sentinel_manager=SimpleNamespace(sentinels=clients), is_master=True)
    return Sentinels(
        OneServer(redis.Connection, {}, 2.0, "there", SimpleNamespace(connection_pool=pool)), tasks=False
    )


def says(port: int, epoch: int, name: bytes = b"books") -> list[Any]:
    """Return a Sentinel's answer, which knows of another service too."""
    other = [b"name", b"films", b"ip", b"10.0.0.9", b"port", b"1", b"config-epoch", b"99"]
    return [other, [b"name", name, b"ip", b"10.0.0.1", b"port", b"%d" % port, b"config-epoch", b"%d" % epoch]]


def test_the_first_answer_is_no_news(sentinels: Sentinels) -> None:
    assert sentinels.hear(1.0, [(FIRST, says(6379, 1))]) is False
    assert sentinels.asked_at == 1.0
    assert sentinels.hear(2.0, [(FIRST, says(6379, 2))]) is False


def test_another_address_is(sentinels: Sentinels) -> None:
    sentinels.hear(1.0, [(FIRST, says(6379, 1))])
    assert sentinels.hear(2.0, [(FIRST, says(6380, 2))]) is True
    assert sentinels.hear(3.0, [(FIRST, says(6380, 2))]) is False


def test_the_one_that_knows_of_the_latest_fail_over_is_believed_and_asked_first(
    sentinels: Sentinels, clients: list[Any]
) -> None:
    sentinels.hear(1.0, [(each, says(6379, 1)) for each in clients])
    assert clients == [FIRST, SECOND, THIRD]
    disagree = [(FIRST, says(6379, 1)), (SECOND, says(6379, 1)), (THIRD, says(6380, 2))]
    assert sentinels.hear(2.0, disagree) is True
    assert clients == [THIRD, SECOND, FIRST]
    assert sentinels.hear(3.0, disagree) is False
    assert sentinels.hear(4.0, disagree[:1]) is False  # the others are silent
    assert clients == [THIRD, SECOND, FIRST]
    assert sentinels.hear(5.0, disagree) is False
    assert sentinels.hear(6.0, [(each, says(6381, 0)) for each in clients[:2]]) is True  # they were set up anew


@pytest.mark.parametrize(
    "nothing", [[], [(FIRST, ReplyError("NOPERM"))], [(FIRST, b"+PONG")], [(FIRST, says(1, 1, b"plays"))]]
)
def test_silence_changes_nothing_and_is_logged_once(
    sentinels: Sentinels, caplog: pytest.LogCaptureFixture, nothing: list[Any]
) -> None:
    sentinels.hear(1.0, [(FIRST, says(6379, 1))])
    for moment in (2.0, 3.0):
        assert sentinels.hear(moment, nothing) is False
        assert sentinels.asked_at > moment  # not asked anew by each command
    assert [each.message for each in caplog.records] == [
        "no Sentinel of 'books' answers: a new primary would not be noticed"
    ]
    assert sentinels.hear(4.0, [(FIRST, says(6380, 2))]) is True


def test_who_did_not_answer_rests(sentinels: Sentinels, clients: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("interlock._redis.sentinels.monotonic", lambda: now[0])
    sentinels.rest(SECOND)
    assert sentinels.to_ask() == [FIRST, THIRD]
    now[0] += REST
    assert sentinels.to_ask() == clients
