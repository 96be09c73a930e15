"""The steps on a line, each with all that it makes of one."""

from typing import Any

import pytest

from interlock.core.claims import DONE, PENDING, USING, WRITER_UNITS, Claim, LockSpec
from interlock.core.line import (
    BATCH,
    DROPS,
    EMPTY,
    IS_DONE,
    RENEWAL_GONE,
    RENEWAL_OK,
    RENEWAL_WANTED,
    Line,
    Origin,
    QueuedClaim,
    StepResult,
    StoreTime,
    adopt,
    complete,
    delete_record,
    enter,
    evict,
    is_nothing,
    leave,
    look,
    read_record,
    renew,
    settle,
)

NOW = StoreTime(5_000_000, 9_000_000, frozenset({"dead"}))
HERE = Origin("host 7", "a channel", "alive")
MINE = QueuedClaim(
    "a", USING, 1, 1, 8_000_000, 3_000_000, 0, 9_000_000, 9_000_000, 9_000_000, 0, False, "me", "text", *HERE
)  # fmt: skip


def there(id: str, state: Any = USING, units: int = 1, capacity: int = 1, **more: Any) -> QueuedClaim:
    """Return a claim that is in the line for a while; its lease goes on for one second."""
    since = {"held": 4} if state == USING else {}
    place = QueuedClaim(
        id, state, units, capacity, 6_000_000, 2_000_000, 7, 3, 4, 0, 0, False, "who", "", "home 1", "", ""
    )
    return place._replace(**since, **more)


def claim(id: str = "a", units: int = 1, capacity: int = 1, once: bool = False) -> Claim:
    """Return a claim of 3 s."""
    return Claim(id, LockSpec("namespace\0name", units, capacity, 3.0, "text", once), "me")


def line(*places: QueuedClaim, max_fence: int = 3, record_expires: int = 0) -> Line:
    """Return a line."""
    return Line(places, max_fence, record_expires)


def promoted(place: QueuedClaim, **more: Any) -> QueuedClaim:
    """Return a waiter as the holder that it becomes."""
    return place._replace(state=USING, held=9_000_000, **more)


X, Y = there("x"), there("y", PENDING)
WIDE = there("x", PENDING, 2, 3)
OVER = there("x", until=5_000_000)
ONCE = there("o", PENDING, once=True)
OF_3 = [there("x", capacity=3, slot=1), there("y", PENDING, 1, 3), there("z", PENDING, 1, 3)]
WAITS = MINE._replace(state=PENDING, held=0)
KNOWN = Y._replace(id="a")
MANY = [there(f"w{number}", PENDING, 1, WRITER_UNITS) for number in range(BATCH + 1)]
CROWD = [there(f"o{number}", PENDING, once=True) for number in range(DROPS + 1)]
RENEWED = X._replace(until=7_000_000, renewal_count=8)
RECORD = QueuedClaim("", DONE, 0, 0, 5_000_001, 0, 0, 0, 0, 0, 0, True, "", "", "", "", "")
ADOPTED = X._replace(
    id="a", ttl=3_000_000, until=8_000_000, renewal_count=0, who="me", label="text", process_name=HERE.process_name,
    channel=HERE.channel,
    liveness_token=HERE.liveness_token,
)  # fmt: skip
WRITER, READER = there("x", units=3, capacity=3), there("z", PENDING, 1, 3)
SMALLER = ADOPTED._replace(id="x", capacity=3)

STEPS = [
    (enter, EMPTY, (claim(), HERE, True, False), StepResult(line(MINE, max_fence=9_000_000), MINE)),
    (enter, line(max_fence=8_999_999), (claim(), HERE, False, False),
     StepResult(line(MINE, max_fence=9_000_000), MINE)),
    (enter, line(max_fence=9_000_000), (claim(), HERE, True, False),
     StepResult(line(MINE._replace(fence=9_000_001), max_fence=9_000_001), MINE._replace(fence=9_000_001))),
    (enter, EMPTY, (claim(), HERE, True, True), StepResult(None, None)),
    (enter, line(record_expires=7), (claim("a", 1, 1024, True), HERE, False, False),
     StepResult(line(MINE._replace(once=True, capacity=1024), max_fence=9_000_000, record_expires=7),
          MINE._replace(once=True, capacity=1024))),
    (enter, line(there("x", capacity=1024), record_expires=7), (claim("a", 1, 1024, True), HERE, False, False),
     StepResult(line(there("x", capacity=1024), MINE._replace(once=True, capacity=1024, slot=1),
                     max_fence=9_000_000, record_expires=7),
          MINE._replace(once=True, capacity=1024, slot=1), (), 1_000_000, False, 2)),
    (enter, line(there("x", capacity=1025)), (claim("a", 1, 1025), HERE, False, False),
     StepResult(line(there("x", capacity=1025), MINE._replace(capacity=1025), max_fence=9_000_000),
          MINE._replace(capacity=1025), (), 1_000_000, False, 2)),
    (enter, line(there("x", capacity=4)), (claim("a", 2, 4), HERE, False, False),
     StepResult(line(there("x", capacity=4), MINE._replace(units=2, capacity=4), max_fence=9_000_000),
          MINE._replace(units=2, capacity=4), (), 1_000_000, False, 2)),
    (enter, line(there("x", units=2, capacity=3)), (claim("a", 2, 4), HERE, False, False), StepResult(None, None)),
    (enter, line(there("x", units=1, capacity=2)), (claim("a", 1, 2), HERE, False, False),
     StepResult(line(there("x", units=1, capacity=2), MINE._replace(capacity=2, slot=1), max_fence=9_000_000),
          MINE._replace(capacity=2, slot=1), (), 1_000_000, False, 2)),
    (enter, line(record_expires=9_000_001), (claim(once=True), HERE, True, False), StepResult(None, IS_DONE)),
    (enter, line(record_expires=9_000_000), (claim(once=True), HERE, True, False),
     StepResult(line(MINE._replace(once=True), max_fence=9_000_000, record_expires=9_000_000),
                MINE._replace(once=True))),
    (enter, line(X, record_expires=9_000_001), (claim(once=True), HERE, True, False), StepResult(None, IS_DONE)),
    (enter, line(X, record_expires=9_000_001), (claim(), HERE, False, False), StepResult(None, None)),
    (enter, line(X), (claim(), HERE, True, True), StepResult(None, None)),
    (enter, line(X), (claim(), HERE, True, False),
     StepResult(line(X, WAITS, max_fence=9_000_000), WAITS, (), 1_000_000, False, 2)),
    (enter, line(OVER), (claim(), HERE, True, False),
     StepResult(line(MINE, max_fence=9_000_000), MINE, (), 0, False, 1)),
    (enter, line(there("x", liveness_token="dead")), (claim(), HERE, True, False),
     StepResult(line(MINE, max_fence=9_000_000), MINE, (), 0, False, 1)),
    (enter, line(there("x", capacity=3), there("y", capacity=3, slot=2)), (claim("a", 1, 3), HERE, False, False),
     StepResult(line(there("x", capacity=3), there("y", capacity=3, slot=2), MINE._replace(capacity=3, slot=1),
               max_fence=9_000_000), MINE._replace(capacity=3, slot=1), (), 1_000_000, False, 3)),
    (enter, line(X, KNOWN), (claim(), HERE, True, True),
     StepResult(line(X, KNOWN._replace(until=7_000_000, channel="a channel")),
          KNOWN._replace(until=7_000_000, channel="a channel"), (), 1_000_000, False, 2)),
    (enter, line(X, KNOWN._replace(until=7_000_001, channel="own"), Y), (claim(), Origin(), True, False),
     StepResult(line(X, KNOWN._replace(until=7_000_001, channel="own"), Y),
          KNOWN._replace(until=7_000_001, channel="own"), (), 1_000_000, False, 3)),
    (enter, line(OVER, KNOWN), (claim(), HERE, True, True),
     StepResult(line(promoted(KNOWN, until=7_000_000, channel="a channel")),
          promoted(KNOWN, until=7_000_000, channel="a channel"), (), 0, False, 1)),
    (leave, line(X, record_expires=1), ("x",), StepResult(line(record_expires=1), True)),
    (leave, line(OVER), ("x",), StepResult(line(), False)),
    (leave, line(there("x", until=4_000_000)), ("x",), StepResult(line(), False)),
    (leave, line(there("h"), Y, Y._replace(id="x")), ("x",), StepResult(line(there("h"), Y), True)),
    (leave, line(there("x", liveness_token="dead")), ("x",), StepResult(line(), False)),
    (leave, line(X), ("y",), StepResult(None, False)),
    (leave, line(X, Y, ONCE), ("x",), StepResult(line(promoted(Y), ONCE), True, (promoted(Y),))),
    (leave, line(X, Y, ONCE), ("y",), StepResult(line(X, ONCE), True)),
    (leave, line(X, Y, ONCE), ("x", 64),
     StepResult(line(promoted(Y), record_expires=9_000_064), True, (promoted(Y), ONCE))),
    (leave, line(X, Y, *CROWD), ("x", 64),
     StepResult(line(Y, CROWD[-1], record_expires=9_000_064), True, (*CROWD[:-1],), 0, True)),
    (settle, line(Y, CROWD[-1], record_expires=9_000_064), (),
     StepResult(line(promoted(Y), record_expires=9_000_064), None, (promoted(Y), CROWD[-1]))),
    (enter, line(Y, *CROWD, record_expires=9_000_064), (claim(once=True), HERE, True, False),
     StepResult(line(Y, CROWD[-1], record_expires=9_000_064), IS_DONE, (*CROWD[:-1],), 0, True)),
    (complete, line(X), ("x", 64, "value"), StepResult(line(record_expires=9_000_064), True)),
    (complete, line(X, Y), ("y", 64, "value"), StepResult(None, False)),
    (leave, line(OVER, Y), ("x",), StepResult(line(promoted(Y)), False, (promoted(Y),))),
    (settle, line(*OF_3), (), StepResult(line(OF_3[0], promoted(OF_3[1]), promoted(OF_3[2], slot=2)), None,
                                   (promoted(OF_3[1]), promoted(OF_3[2], slot=2)))),
    (settle, line(WIDE, there("y", PENDING, 2, 3)), (),
     StepResult(line(promoted(WIDE), there("y", PENDING, 2, 3)), None, (promoted(WIDE),))),
    (settle, line(there("x", PENDING, 1, 2), Y), (),
     StepResult(line(promoted(there("x", PENDING, 1, 2)), Y), None, (promoted(there("x", PENDING, 1, 2)),))),
    (settle, line(X), (), StepResult(None, None)),
    (settle, line(there("x", until=4_000_000), Y), (), StepResult(line(promoted(Y)), None, (promoted(Y),))),
    (settle, line(*MANY), (), StepResult(line(*map(promoted, MANY[:BATCH]), MANY[-1]), None,
                                   (*map(promoted, MANY[:BATCH]),), 0, True)),
    (settle, line(*MANY[1:]), (), StepResult(line(*map(promoted, MANY[1:])), None, (*map(promoted, MANY[1:]),))),
    (renew, line(X), (["x"],), StepResult(line(RENEWED), [RENEWAL_OK])),
    (renew, line(X, Y), (["y", "z", "x"],),
     StepResult(line(RENEWED, Y._replace(until=7_000_000, renewal_count=8)),
                [RENEWAL_WANTED, RENEWAL_GONE, RENEWAL_WANTED])),
    (renew, line(X._replace(until=7_000_001)), (["x"],),
     StepResult(line(X._replace(until=7_000_001, renewal_count=8)), [RENEWAL_OK])),
    (renew, line(X), (["z"],), StepResult(None, [RENEWAL_GONE])),
    (renew, line(OVER, Y), (["x"],), StepResult(line(promoted(Y)), [RENEWAL_GONE], (promoted(Y),))),
    (adopt, line(X), ("x", claim(), HERE), StepResult(line(ADOPTED), ADOPTED)),
    (adopt, line(X, Y), ("y", claim(), HERE), StepResult(None, None)),
    (adopt, line(there("y", capacity=2), X._replace(capacity=2), KNOWN._replace(id="z")), ("x", claim(), HERE),
     StepResult(line(there("y", capacity=2), ADOPTED._replace(capacity=2), KNOWN._replace(id="z")),
          ADOPTED._replace(capacity=2))),
    (adopt, line(ADOPTED), ("x", claim(), HERE), StepResult(None, ADOPTED)),
    (adopt, line(X), ("x", claim("x"), HERE), StepResult(line(ADOPTED._replace(id="x")), ADOPTED._replace(id="x"))),
    (adopt, line(WRITER, READER, Y), ("x", claim("x", capacity=3), HERE),
     StepResult(line(SMALLER, promoted(READER, slot=1), Y), SMALLER, (promoted(READER, slot=1),))),
    (adopt, line(WRITER), ("x", claim("x", 4, 3), HERE),
     StepResult(line(SMALLER._replace(units=3)), SMALLER._replace(units=3))),
    (adopt, line(there("x", units=2, capacity=3)), ("x", claim("x", capacity=3), HERE),
     StepResult(line(SMALLER._replace(units=2)), SMALLER._replace(units=2))),
    (evict, line(X, Y, ONCE), ("x",), StepResult(line(promoted(Y), ONCE), 1, (promoted(Y),))),
    (evict, line(X, Y, ONCE), ("y",), StepResult(line(X, ONCE), 1, (Y,))),
    (evict, line(X, Y, record_expires=1), (None,), StepResult(line(record_expires=1), 2, (Y,))),
    (evict, line(X, Y), ("z",), StepResult(None, 0)),
    (delete_record, line(record_expires=9_000_001), (), StepResult(line(), True)),
    (delete_record, line(record_expires=9_000_000), (), StepResult(line(), False)),
    (delete_record, line(record_expires=8_999_999), (), StepResult(line(), False)),
    (delete_record, line(), (), StepResult(None, False)),
    (read_record, line(record_expires=9_000_001), (), StepResult(None, True)),
    (read_record, line(record_expires=9_000_000), (), StepResult(None, False)),
    (look, line(X, there("z", liveness_token="dead"), Y, record_expires=9_000_001), (),
     StepResult(None, (X, Y, RECORD), (), 5_000_000)),
    (look, line(X), (), StepResult(None, (X,), (), 5_000_000)),
    (is_nothing, line(max_fence=8_999_999, record_expires=9_000_000), (), True),
    (is_nothing, line(X), (), False),
    (is_nothing, line(max_fence=int("9000000")), (), False),  # another object than the clock's number
    (is_nothing, line(record_expires=9_000_001), (), False),
    (look, line(X, OVER, record_expires=9_000_000), (), StepResult(None, (X,), (), 5_000_000)),
]  # fmt: skip


@pytest.mark.parametrize(("step", "before", "given", "after"), STEPS)
def test_a_step_makes_of_a_line(step: Any, before: Line, given: Any, after: Any) -> None:
    assert step(before, NOW, *given) == after
