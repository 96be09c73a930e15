"""The steps on a line, each with all that it makes of one."""

from typing import Any

import pytest

from interlock.core.claims import DONE, PENDING, USING, WRITER_UNITS, Claim, LockSpec
from interlock.core.line import (
    BATCH,
    DROPS,
    EMPTY,
    GONE,
    IS_DONE,
    KEPT,
    WANTED,
    Clock,
    Line,
    Origin,
    Place,
    Step,
    adopt,
    complete,
    enter,
    evict,
    forget,
    is_nothing,
    kept,
    leave,
    look,
    renew,
    settle,
)

NOW = Clock(5_000_000, 9_000_000, frozenset({"dead"}))
HERE = Origin("host 7", "a channel", "alive")
MINE = Place(
    "a", USING, 1, 1, 8_000_000, 3_000_000, 0, 9_000_000, 9_000_000, 9_000_000, 0, False, "me", "text", *HERE
)  # fmt: skip


def there(id: str, state: Any = USING, units: int = 1, capacity: int = 1, **more: Any) -> Place:
    """Return a claim that is in the line for a while; its lease goes on for one second."""
    since = {"held": 4} if state == USING else {}
    place = Place(id, state, units, capacity, 6_000_000, 2_000_000, 7, 3, 4, 0, 0, False, "who", "", "home 1", "", "")
    return place._replace(**since, **more)


def claim(id: str = "a", units: int = 1, capacity: int = 1, once: bool = False) -> Claim:
    """Return a claim of 3 s."""
    return Claim(id, LockSpec("namespace\0name", units, capacity, 3.0, "text", once), "me")


def line(*places: Place, top: int = 3, done: int = 0) -> Line:
    """Return a line."""
    return Line(places, top, done)


def promoted(place: Place, **more: Any) -> Place:
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
RENEWED = X._replace(until=7_000_000, beat=8)
RECORD = Place("", DONE, 0, 0, 5_000_001, 0, 0, 0, 0, 0, 0, True, "", "", "", "", "")
ADOPTED = X._replace(
    id="a", ttl=3_000_000, until=8_000_000, beat=0, who="me", label="text", home=HERE.home, channel=HERE.channel,
    alive=HERE.alive,
)  # fmt: skip

STEPS = [
    (enter, EMPTY, (claim(), HERE, True, False), Step(line(MINE, top=9_000_000), MINE)),
    (enter, line(top=8_999_999), (claim(), HERE, False, False), Step(line(MINE, top=9_000_000), MINE)),
    (enter, line(top=9_000_000), (claim(), HERE, True, False),
     Step(line(MINE._replace(fence=9_000_001), top=9_000_001), MINE._replace(fence=9_000_001))),
    (enter, EMPTY, (claim(), HERE, True, True), Step(None, None)),
    (enter, line(done=7), (claim("a", 1, 1024, True), HERE, False, False),
     Step(line(MINE._replace(once=True, capacity=1024), top=9_000_000, done=7),
          MINE._replace(once=True, capacity=1024))),
    (enter, line(there("x", capacity=1024), done=7), (claim("a", 1, 1024, True), HERE, False, False),
     Step(line(there("x", capacity=1024), MINE._replace(once=True, capacity=1024, slot=1), top=9_000_000, done=7),
          MINE._replace(once=True, capacity=1024, slot=1), (), 1_000_000, False, 2)),
    (enter, line(there("x", capacity=1025)), (claim("a", 1, 1025), HERE, False, False),
     Step(line(there("x", capacity=1025), MINE._replace(capacity=1025), top=9_000_000),
          MINE._replace(capacity=1025), (), 1_000_000, False, 2)),
    (enter, line(there("x", capacity=4)), (claim("a", 2, 4), HERE, False, False),
     Step(line(there("x", capacity=4), MINE._replace(units=2, capacity=4), top=9_000_000),
          MINE._replace(units=2, capacity=4), (), 1_000_000, False, 2)),
    (enter, line(there("x", units=2, capacity=3)), (claim("a", 2, 4), HERE, False, False), Step(None, None)),
    (enter, line(there("x", units=1, capacity=2)), (claim("a", 1, 2), HERE, False, False),
     Step(line(there("x", units=1, capacity=2), MINE._replace(capacity=2, slot=1), top=9_000_000),
          MINE._replace(capacity=2, slot=1), (), 1_000_000, False, 2)),
    (enter, line(done=9_000_001), (claim(once=True), HERE, True, False), Step(None, IS_DONE)),
    (enter, line(done=9_000_000), (claim(once=True), HERE, True, False),
     Step(line(MINE._replace(once=True), top=9_000_000, done=9_000_000), MINE._replace(once=True))),
    (enter, line(X, done=9_000_001), (claim(once=True), HERE, True, False), Step(None, IS_DONE)),
    (enter, line(X, done=9_000_001), (claim(), HERE, False, False), Step(None, None)),
    (enter, line(X), (claim(), HERE, True, True), Step(None, None)),
    (enter, line(X), (claim(), HERE, True, False),
     Step(line(X, WAITS, top=9_000_000), WAITS, (), 1_000_000, False, 2)),
    (enter, line(OVER), (claim(), HERE, True, False), Step(line(MINE, top=9_000_000), MINE, (), 0, False, 1)),
    (enter, line(there("x", alive="dead")), (claim(), HERE, True, False),
     Step(line(MINE, top=9_000_000), MINE, (), 0, False, 1)),
    (enter, line(there("x", capacity=3), there("y", capacity=3, slot=2)), (claim("a", 1, 3), HERE, False, False),
     Step(line(there("x", capacity=3), there("y", capacity=3, slot=2), MINE._replace(capacity=3, slot=1),
               top=9_000_000), MINE._replace(capacity=3, slot=1), (), 1_000_000, False, 3)),
    (enter, line(X, KNOWN), (claim(), HERE, True, True),
     Step(line(X, KNOWN._replace(until=7_000_000, channel="a channel")),
          KNOWN._replace(until=7_000_000, channel="a channel"), (), 1_000_000, False, 2)),
    (enter, line(X, KNOWN._replace(until=7_000_001, channel="own"), Y), (claim(), Origin(), True, False),
     Step(line(X, KNOWN._replace(until=7_000_001, channel="own"), Y),
          KNOWN._replace(until=7_000_001, channel="own"), (), 1_000_000, False, 3)),
    (enter, line(OVER, KNOWN), (claim(), HERE, True, True),
     Step(line(promoted(KNOWN, until=7_000_000, channel="a channel")),
          promoted(KNOWN, until=7_000_000, channel="a channel"), (), 0, False, 1)),
    (leave, line(X, done=1), ("x",), Step(line(done=1), True)),
    (leave, line(OVER), ("x",), Step(line(), False)),
    (leave, line(there("x", until=4_000_000)), ("x",), Step(line(), False)),
    (leave, line(there("h"), Y, Y._replace(id="x")), ("x",), Step(line(there("h"), Y), True)),
    (leave, line(there("x", alive="dead")), ("x",), Step(line(), False)),
    (leave, line(X), ("y",), Step(None, False)),
    (leave, line(X, Y, ONCE), ("x",), Step(line(promoted(Y), ONCE), True, (promoted(Y),))),
    (leave, line(X, Y, ONCE), ("y",), Step(line(X, ONCE), True)),
    (leave, line(X, Y, ONCE), ("x", 64), Step(line(promoted(Y), done=9_000_064), True, (promoted(Y), ONCE))),
    (leave, line(X, Y, *CROWD), ("x", 64),
     Step(line(Y, CROWD[-1], done=9_000_064), True, (*CROWD[:-1],), 0, True)),
    (settle, line(Y, CROWD[-1], done=9_000_064), (),
     Step(line(promoted(Y), done=9_000_064), None, (promoted(Y), CROWD[-1]))),
    (enter, line(Y, *CROWD, done=9_000_064), (claim(once=True), HERE, True, False),
     Step(line(Y, CROWD[-1], done=9_000_064), IS_DONE, (*CROWD[:-1],), 0, True)),
    (complete, line(X), ("x", 64, "value"), Step(line(done=9_000_064), True)),
    (complete, line(X, Y), ("y", 64, "value"), Step(None, False)),
    (leave, line(OVER, Y), ("x",), Step(line(promoted(Y)), False, (promoted(Y),))),
    (settle, line(*OF_3), (), Step(line(OF_3[0], promoted(OF_3[1]), promoted(OF_3[2], slot=2)), None,
                                   (promoted(OF_3[1]), promoted(OF_3[2], slot=2)))),
    (settle, line(WIDE, there("y", PENDING, 2, 3)), (),
     Step(line(promoted(WIDE), there("y", PENDING, 2, 3)), None, (promoted(WIDE),))),
    (settle, line(there("x", PENDING, 1, 2), Y), (),
     Step(line(promoted(there("x", PENDING, 1, 2)), Y), None, (promoted(there("x", PENDING, 1, 2)),))),
    (settle, line(X), (), Step(None, None)),
    (settle, line(there("x", until=4_000_000), Y), (), Step(line(promoted(Y)), None, (promoted(Y),))),
    (settle, line(*MANY), (), Step(line(*map(promoted, MANY[:BATCH]), MANY[-1]), None,
                                   (*map(promoted, MANY[:BATCH]),), 0, True)),
    (settle, line(*MANY[1:]), (), Step(line(*map(promoted, MANY[1:])), None, (*map(promoted, MANY[1:]),))),
    (renew, line(X), (["x"],), Step(line(RENEWED), [KEPT])),
    (renew, line(X, Y), (["y", "z", "x"],),
     Step(line(RENEWED, Y._replace(until=7_000_000, beat=8)), [WANTED, GONE, WANTED])),
    (renew, line(X._replace(until=7_000_001)), (["x"],), Step(line(X._replace(until=7_000_001, beat=8)), [KEPT])),
    (renew, line(X), (["z"],), Step(None, [GONE])),
    (renew, line(OVER, Y), (["x"],), Step(line(promoted(Y)), [GONE], (promoted(Y),))),
    (adopt, line(X), ("x", claim(), HERE), Step(line(ADOPTED), ADOPTED)),
    (adopt, line(X, Y), ("y", claim(), HERE), Step(None, None)),
    (adopt, line(there("y", capacity=2), X._replace(capacity=2), KNOWN._replace(id="z")), ("x", claim(), HERE),
     Step(line(there("y", capacity=2), ADOPTED._replace(capacity=2), KNOWN._replace(id="z")),
          ADOPTED._replace(capacity=2))),
    (adopt, line(ADOPTED), ("x", claim(), HERE), Step(None, ADOPTED)),
    (adopt, line(X), ("x", claim("x"), HERE), Step(line(ADOPTED._replace(id="x")), ADOPTED._replace(id="x"))),
    (evict, line(X, Y, ONCE), ("x",), Step(line(promoted(Y), ONCE), 1, (promoted(Y),))),
    (evict, line(X, Y, ONCE), ("y",), Step(line(X, ONCE), 1, (Y,))),
    (evict, line(X, Y, done=1), (None,), Step(line(done=1), 2, (Y,))),
    (evict, line(X, Y), ("z",), Step(None, 0)),
    (forget, line(done=9_000_001), (), Step(line(), True)),
    (forget, line(done=9_000_000), (), Step(line(), False)),
    (forget, line(done=8_999_999), (), Step(line(), False)),
    (forget, line(), (), Step(None, False)),
    (kept, line(done=9_000_001), (), Step(None, True)),
    (kept, line(done=9_000_000), (), Step(None, False)),
    (look, line(X, there("z", alive="dead"), Y, done=9_000_001), (), Step(None, (X, Y, RECORD), (), 5_000_000)),
    (look, line(X), (), Step(None, (X,), (), 5_000_000)),
    (is_nothing, line(top=8_999_999, done=9_000_000), (), True),
    (is_nothing, line(X), (), False),
    (is_nothing, line(top=int("9000000")), (), False),  # another object than the clock's number
    (is_nothing, line(done=9_000_001), (), False),
    (look, line(X, OVER, done=9_000_000), (), Step(None, (X,), (), 5_000_000)),
]  # fmt: skip


@pytest.mark.parametrize(("step", "before", "given", "after"), STEPS)
def test_a_step_makes_of_a_line(step: Any, before: Line, given: Any, after: Any) -> None:
    assert step(before, NOW, *given) == after
