"""The scripts do with successors what the checker's model of the server does: the same steps get the same answers."""

from collections.abc import Iterator
from time import sleep
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from interlock._redis.keys import keys_of_line, line_of
from interlock._redis.scripts import ENTER, LEAVE, call
from interlock.runtime.sync import fresh_id
from proof.handoff.line import Line, enter, expired, leave
from tests.servers import RedisServer, need
from tests.servers.resp import Wire
from tests.support.redis_worlds import write_ahead

STEP = some.tuples(
    some.sampled_from(["enter", "enter", "enter", "enter", "plain", "brief", "leave", "leave", "again", "ahead"]),
    some.integers(0, 30),
)
WHOLE, PLAIN = (
    ("3", "3"),
    ("2", "3"),
)  # units and capacity: two claims never fit, and one that has a part is no successor
LONG, BRIEF = "600000", "1"  # milliseconds
AHEAD = 31  # seconds


@pytest.fixture(scope="module", params=["valkey", "redis"])
def wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    need(request.param)
    with RedisServer(request.param) as server, server.wire() as wire:
        for script in (ENTER, LEAVE):
            wire.ask("SCRIPT", "LOAD", script.text)
        yield wire


class Fences:
    """Which fence of the server is which of the model's; the server's are of its clock."""

    def __init__(self) -> None:
        self.pairs: dict[int, int] = {}

    def same(self, ours: int, theirs: int) -> bool:
        """Is it the same as before, or else in the same order among those that were seen?"""
        if ours not in self.pairs:
            assert all((theirs > its) == (ours > each) for each, its in self.pairs.items())
            self.pairs[ours] = theirs
        return self.pairs[ours] == theirs


def asked(wire: Wire, what: str, keys: tuple[str, str, str], id: str, *more: str) -> Any:
    """Perform a script, each process with a channel of its own."""
    channel = f"channel:{id[0]}"
    if what == "leave":
        command = call(LEAVE, keys, channel, *more, id)
    else:
        ttl, mode, *share = more
        command = call(ENTER, keys, ttl, *share, channel, mode, "host\n1\nthread\nlabel", id)
    wire._socket.sendall(command)
    return wire.read()


def entered(fences: Fences, reply: Any, answer: Any) -> None:
    """Compare the answers to enter."""
    if answer is None:
        assert reply == -1
    elif isinstance(answer, int):
        assert fences.same(answer, reply)
    elif answer == ("", 0):
        assert reply <= -10
    else:
        code, before, fence = reply
        assert code <= -10
        assert before == answer[0]
        assert fences.same(answer[1], fence)


def left(fences: Fences, reply: Any, promoted: Any) -> None:
    """Compare the answers to leave."""
    told = reply[1:] if isinstance(reply, list) else []
    assert told[::2] == [id for id, _ in promoted]
    for (_, ours), theirs in zip(promoted, told[1::2], strict=True):
        assert fences.same(ours, theirs)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=some.lists(STEP, max_size=60))
def test_the_same_steps_get_the_same_answers(wire: Wire, steps: list[tuple[str, int]]) -> None:
    keys = keys_of_line(line_of(fresh_id()))
    line, fences, ids, plain = Line(), Fences(), list[str](), set[str]()
    for what, number in steps:
        if what in ("enter", "plain", "brief") or not ids:
            id = f"{number % 2}{len(ids)}"
            ids.append(id)
            if what == "plain":
                plain.add(id)
            share = PLAIN if what == "plain" else WHOLE
            reply = asked(wire, "enter", keys, id, BRIEF if what == "brief" else LONG, "w", *share)
            line, answer, _ = enter(line, id, again=False, whole=what != "plain")
            entered(fences, reply, answer)
            if what == "brief":
                sleep(0.004)
                line = expired(line, id)
        elif what == "ahead":
            write_ahead(wire, keys[0], AHEAD)
        elif what == "again":
            id = ids[number % len(ids)]
            reply = asked(wire, "enter", keys, id, LONG, "a", *(PLAIN if id in plain else WHOLE))
            line, answer, _ = enter(line, id, again=True)
            entered(fences, reply, answer)
        else:
            id = ids[number % len(ids)]
            successors = [(each.id, each.fence) for each in line.waiting if each.fence]
            let_in = successors[number % 3] if number % 3 < len(successors) else None
            word = f"{let_in[0]} {fences.pairs[let_in[1]]}" if let_in and let_in[1] in fences.pairs else ""
            reply = asked(wire, "leave", keys, id, word)
            let_in = let_in if word else None
            line, promoted = leave(line, id, let_in)
            left(fences, reply, [each for each in promoted if each[0][0] == id[0]])
    reply = wire.ask("ZRANGE", keys[1], 0, -1)
    alive = [each.id for each in line.waiting if each.alive]
    assert [id for id in reply if id in alive] == alive  # who is dead may be taken out sooner or later
    assert set(reply) <= {each.id for each in line.waiting}


def test_a_long_line_without_successor_has_them_again(wire: Wire) -> None:
    keys = keys_of_line(line_of(fresh_id()))
    assert asked(wire, "enter", keys, "0reader", LONG, "w", *PLAIN) > 0
    ids = [f"0{number}" for number in range(50)]
    for id in ids:
        assert asked(wire, "enter", keys, id, LONG, "w", *WHOLE) <= -10
    left(Fences(), asked(wire, "leave", keys, "0reader", ""), [("00", 1)])
    newcomers = []
    for id in ids[:10]:
        asked(wire, "leave", keys, id, "")
        newcomers.append(asked(wire, "enter", keys, f"1{id}", LONG, "w", *WHOLE))
    named = [isinstance(each, list) for each in newcomers]
    assert named == [False] * named.index(True) + [True] * (10 - named.index(True))
    fences = [newcomers[-1][2]]
    for id in (*ids[10:], *(f"1{id}" for id in ids[:10])):
        reply = asked(wire, "leave", keys, id, "")
        fences += reply[2:] if isinstance(reply, list) else []
    last = fences.pop(0)
    assert fences == sorted(set(fences))
    assert fences[-1] == last
    assert sorted(wire.ask("HKEYS", keys[0])) == ["fence", "kept"]
