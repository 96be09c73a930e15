"""What goes over the wire: one request a step, and a notification only where somebody waits for it."""

from collections.abc import Callable
from typing import Any

import pytest

import interlock
from interlock.testing.waiting import WAIT_LIMIT, eventually
from tests.postgresql.conftest import Ask
from tests.servers import PostgresServer, Proxy
from tests.support.sides import Side, side


def requests_in(sent: bytes) -> int:
    """Count the messages of the protocol that end a request: Sync, or a simple Query."""
    number = 0
    while sent:
        number += sent[:1] in (b"S", b"Q")
        sent = sent[1 + int.from_bytes(sent[1:5], "big") :]
    return number


class Wire(Proxy):
    """A proxy before the server."""

    def cost(self, step: Callable[[], Any]) -> tuple[int, int]:
        """Return how many packets a step sends, and how many requests they have."""
        requests, sent = self.requests, len(self.sent)
        assert step()
        return self.requests - requests, requests_in(self.sent[sent:])


def seen_by(wire: Wire, server: PostgresServer, url: str) -> str:
    """Return the URL that leads through the wire, unencrypted."""
    return f"{url.replace(f':{server.port}/', f':{wire.port}/')}&sslmode=disable&gssencmode=disable"


@pytest.mark.parametrize(
    "setting", ["", "default_transaction_isolation = 'serializable'", "default_transaction_read_only = on"]
)
def test_a_step_is_one_request_in_one_packet(
    server: PostgresServer, url: str, role: Callable[[str], None], colour: str, setting: str
) -> None:
    """Whoever is stopped after it was sent keeps nothing of the database's, whatever its defaults are."""
    if setting:
        role(setting)
    with Wire(server.host, server.port) as wire, side(colour, seen_by(wire, server, url)) as ours:
        grant = ours.take("a")
        assert ours.do(grant.release) is True
        grants = []
        assert wire.cost(lambda: grants.append(ours.take("a")) or grants) == (1, 1)
        assert wire.cost(lambda: ours.do(grants[0].renew)) == (1, 1)
        assert wire.cost(lambda: ours.claims("a")) == (1, 1)
        assert wire.cost(lambda: ours.take("a", timeout=0) is None) == (1, 1)
        assert wire.cost(lambda: ours.do(grants[0].release)) == (1, 1)
        ours.take("a")
        assert wire.cost(lambda: ours.do(ours.locks.evict, "a")) == (1, 1)


def test_a_pair_that_nobody_disturbs_is_two_requests(server: PostgresServer, url: str, colour: str) -> None:
    def pairs(ours: Side) -> bool:
        for _ in range(20):
            assert ours.do(ours.take("a").release) is True
        return True

    with Wire(server.host, server.port) as wire, side(colour, seen_by(wire, server, url)) as ours:
        pairs(ours)
        assert wire.cost(lambda: pairs(ours)) == (40, 40)
        assert wire.connections == 1


@pytest.fixture
def told(url: str, ask: Ask) -> tuple[str, Callable[[], int]]:
    """A URL by which a pg_notify that counts is found before the server's, and how often that was called."""
    ask(
        "CREATE SCHEMA IF NOT EXISTS spy; CREATE TABLE IF NOT EXISTS spy.told (channel text); DELETE FROM spy.told; "
        "CREATE OR REPLACE FUNCTION spy.pg_notify(text, text) RETURNS void LANGUAGE sql AS "
        "$$ INSERT INTO spy.told VALUES ($1); SELECT pg_catalog.pg_notify($1, $2) $$"
    )
    with interlock.connect(url) as locks, locks.lock("made"):
        pass
    path = "options=-c%20search_path=spy,pg_catalog,public"
    counted = "SELECT count(*) FROM spy.told WHERE channel LIKE 'interlock%%'"
    return f"{url}&{path}&create=false", lambda: int(ask(counted)[0][0])


def test_nobody_is_notified_while_nobody_of_another_process_waits(told: Any, colour: str) -> None:
    url, times = told
    with side(colour, url) as ours, side(colour, url) as theirs:
        for number in range(3):
            grant = ours.take("a")
            assert theirs.take("a", timeout=0) is None
            assert ours.do(grant.renew)
            assert ours.do(grant.release) is True
            permits = [ours.do(each.locks.semaphore("b", 2).acquire) for each in (ours, ours)]
            assert [ours.do(permit.release) for permit in permits] == [True, True]
            with ours.beside() as beside:
                grant = ours.take("c")
                waiting = beside.waits("c")
                eventually(lambda: len(ours.claims("c")) == 2)
                assert ours.do(grant.release) is True
                assert beside.do(waiting.result(WAIT_LIMIT).release) is True
            assert times() == 0, number
        grant = ours.take("a")
        waiting = theirs.waits("a")
        eventually(lambda: len(ours.claims("a")) == 2)
        assert ours.do(grant.release) is True
        assert theirs.do(waiting.result(WAIT_LIMIT).release) is True
        assert times() == 1
