"""The wire format: both parsers understand all replies, in whatever pieces they come."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from interlock._redis import resp
from interlock._redis.resp import MISSING, Garbage, NumberParser, PlainParser, Push, ReplyError, pack

PARSERS = [PlainParser, NumberParser]
REPLIES: list[tuple[bytes, Any]] = [
    (b":42\r\n", 42),
    (b":-1\r\n", -1),
    (b"+OK\r\n", b"OK"),
    (b"$5\r\nhello\r\n", b"hello"),
    (b"$0\r\n\r\n", b""),
    (b"$-1\r\n", None),
    (b"*-1\r\n", None),
    (b"*0\r\n", []),
    (b"*2\r\n:1\r\n*1\r\n$1\r\na\r\n", [1, [b"a"]]),
    (b"_\r\n", None),
    (b"#t\r\n", True),
    (b"#f\r\n", False),
]


def all_of(parser: Any, data: bytes, cuts: list[int]) -> list[Any]:
    """Feed `data` in pieces, and return all replies."""
    found: list[Any] = []
    edges = [0, *sorted({min(cut, len(data)) for cut in cuts}), len(data)]
    for start, end in pairwise(edges):
        parser.feed(data[start:end])
        while (reply := parser.next()) is not MISSING:
            found.append(reply)
    return found


@pytest.mark.parametrize("make", PARSERS)
@given(some.lists(some.sampled_from(REPLIES), max_size=6), some.lists(some.integers(0, 120), max_size=6))
def test_replies_come_out_whole_in_whatever_pieces_they_come(make: Any, replies: list[Any], cuts: list[int]) -> None:
    data = b"".join(sent for sent, _ in replies)
    assert all_of(make(), data, cuts) == [meant for _, meant in replies]


@pytest.mark.parametrize("make", PARSERS)
def test_an_error_of_the_server_is_returned_not_raised(make: Any) -> None:
    replies = all_of(make(), b"-WRONGTYPE no\r\n:1\r\n", [])
    assert isinstance(replies[0], ReplyError)
    assert str(replies[0]) == "WRONGTYPE no"
    assert replies[1] == 1


@pytest.mark.parametrize("make", PARSERS)
def test_what_the_server_sends_by_itself_is_known_as_such(make: Any) -> None:
    replies = all_of(make(), b">2\r\n$10\r\ninvalidate\r\n:1\r\n:7\r\n", [3])
    assert type(replies[0]) is Push
    assert replies[0] == [b"invalidate", 1]
    assert replies[1] == 7


def test_rarer_kinds_of_replies() -> None:
    data = b"=7\r\ntxt:abc\r\n,1.5\r\n(123\r\n!3\r\nERR\r\n~1\r\n:1\r\n%1\r\n+a\r\n:1\r\n|1\r\n+a\r\n:1\r\n:9\r\n"
    replies = all_of(PlainParser(), data, [])
    assert replies[:3] == [b"txt:abc", b"1.5", b"123"]
    assert isinstance(replies[3], ReplyError)
    assert replies[4:] == [[1], [b"a", 1], 9]


def test_what_is_no_reply_of_redis_is_an_error_that_shows_it() -> None:
    for garbage in (b"HTTP/1.1 400 Bad Request\r\n", b":HTTP\r\n", b"$HTTP\r\n", b"*1\r\nHTTP\r\n"):
        with pytest.raises(Garbage, match="HTTP"):
            all_of(PlainParser(), garbage, [])
        with pytest.raises(Garbage):
            all_of(NumberParser(), garbage, [])


@pytest.mark.parametrize(("there", "kind"), [(True, NumberParser), (False, PlainParser)])
def test_hiredis_is_used_where_it_is(monkeypatch: pytest.MonkeyPatch, there: bool, kind: type) -> None:
    if not there:
        monkeypatch.setattr(resp, "hiredis", None)
    assert type(resp.parser()) is kind


def test_a_command_is_packed_by_bytes_not_by_letters() -> None:
    assert pack("ECHO", "ü", b"\r\n") == b"*3\r\n$4\r\nECHO\r\n$2\r\n\xc3\xbc\r\n$2\r\n\r\n\r\n"
