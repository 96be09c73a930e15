"""Every store answers as `core.line` does: random steps of two processes give the same results as on memory://."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import interlock.stores.files._sync.queue as files_queue
from interlock.api.connect import open_store
from interlock.core import line
from interlock.core.claims import SEPARATOR, Claim, LockSpec
from interlock.core.queue import Granted
from interlock.runtime import clock
from interlock.runtime._threads import fresh_id
from interlock.stores.files import FileStore
from interlock.stores.memory import MemoryNamespace, MemoryStore
from interlock.stores.postgresql import ddl as ddl_of
from interlock.stores.redis.wire import SOURCES
from interlock.testing.waiting import eventually
from tests.servers import need
from tests.servers.clock import Stepped
from tests.support import line_steps
from tests.support.line_steps import Side, play
from tests.support.stores import ROWS
from tests.support.text_store import Texts, TextStore
from tests.torture.server import SteppedMaria, SteppedPostgres, SteppedRedis

GAMES = 12
RENEWALS = [14, 25, 59]  # games whose renewals find a waiter that has its turn, or whose lease has expired
SERVERS: dict[str, tuple[str, Callable[[], Any]]] = {
    "valkey": ("valkey", lambda: SteppedRedis("valkey")),
    "redis": ("redis", lambda: SteppedRedis("redis")),
    "postgresql": ("postgres", SteppedPostgres),
    "mariadb": ("mariadb", SteppedMaria),
}


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A server whose clock can be set."""
    kind, make = SERVERS[request.param]
    need(kind)
    server = make()
    server.start()
    yield server
    server.close()


@pytest.fixture
def pass_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets time pass by the clocks of the library, and of the stores in this process."""
    passed = 0.0
    for name in ("now", "awake_or_not", "time_of_day"):
        monkeypatch.setattr(clock, name, lambda real=getattr(clock, name): real() + passed)

    def let_pass(seconds: float) -> None:
        nonlocal passed
        passed += seconds

    return let_pass


def same(
    game: int, stores: list[Any], pass_time: Callable[[float], object] | None, ahead: Any = lambda: 0.0,
    finish: bool = False, steps: int = 40, kinds: Any = None, renewals_promote: bool = True,
) -> None:  # fmt: skip
    """Compare random steps on the stores of two processes with memory://."""
    model = MemoryStore(MemoryNamespace(lambda: clock.now() + ahead()))
    reference, other = Side([model.queue(), model.queue()]), Side([store.queue() for store in stores])
    try:
        play(game, reference, other, pass_time, steps, finish, kinds, renewals_promote)
    finally:
        other.close()
        reference.close()


@pytest.mark.parametrize("game", [*range(GAMES), *RENEWALS])
def test_a_server_answers_as_the_line(server: Any, game: int) -> None:
    compare(server, game)


def compare(server: Any, game: int, finish: bool = False, options: str = "", **how: Any) -> None:
    """Compare random steps on a server with memory://."""

    stores = [open_store(server.url + options)] * 2
    how["renewals_promote"] = not isinstance(server, SteppedPostgres)  # there a renewal locks no name
    same(game, stores, lambda seconds: step_clock(server, seconds), lambda: server.ahead, finish, **how)


def step_clock(server: Any, seconds: float) -> None:
    """Move the clock of a server forward, and wait until its steps use the new time."""
    assert isinstance(server, Stepped)
    server.step(seconds)
    if isinstance(server, SteppedRedis):  # it looks at the clock now and then
        eventually(lambda: int(server.command("TIME")[0]) - clock.time_of_day() > server.ahead - 1.0)


@pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
def test_a_renewal_notifies_the_waiter_that_it_promotes(server: Any) -> None:
    queue = open_store(server.url).queue()
    spec = LockSpec(f"n{SEPARATOR}renewed", 1, 1, line_steps.LONG)
    dead, claim = Claim(fresh_id(), spec._replace(ttl=line_steps.BRIEF)), Claim(fresh_id(), spec)
    waiter = queue.subscribe()
    try:
        assert queue.enter(dead, None, False, False).state == "using"
        assert queue.enter(claim, waiter, True, False).state == "pending"
        step_clock(server, line_steps.PASS)
        assert queue.renew([claim]) == [line.RENEWAL_OK]
        assert isinstance(eventually(lambda: waiter.wait(0.0)), Granted)
    finally:
        waiter.close()
        queue.close()


@pytest.mark.parametrize("server", ["postgresql"], indirect=True)
@pytest.mark.parametrize("game", range(GAMES))
def test_short_cuts_of_sql_answer_as_the_line(server: Any, game: int) -> None:
    """Leases longer than the grace take no short cut."""
    options = f"?table=quick&grace={2 * line_steps.LONG:.0f}"
    compare(server, game + 2000, options=options, steps=120, kinds=line_steps.ALONE)


@pytest.mark.parametrize("server", ["postgresql"], indirect=True)
@pytest.mark.parametrize("game", range(2 * GAMES))
def test_small_batches_of_sql_answer_as_the_line(server: Any, game: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "BATCH", 3)
    monkeypatch.setattr(line, "DROPS", 3)
    real = ddl_of.get_data
    monkeypatch.setattr(
        ddl_of, "get_data", lambda package, name: real(package, name).replace(b"integer := 1000", b"integer := 3")
    )
    ddl_of.ddl.cache_clear()
    try:
        compare(server, game + 1000, finish=True, options="?table=small")
    finally:
        ddl_of.ddl.cache_clear()


@pytest.fixture
def small(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a step of Redis, and of the model, check and promote two or three claims at most."""
    monkeypatch.setattr(line, "BATCH", 2)
    monkeypatch.setattr(line, "DROPS", 2)
    for sha, text in SOURCES.items():
        small = text.replace(b"room = 1000, batch = 250", b"room = 3, batch = 2").replace(
            b"'COUNT', 250", b"'COUNT', 1"
        )
        assert small != text
        monkeypatch.setitem(SOURCES, sha, small)
    server.command("SCRIPT", "FLUSH")
    server.command("CONFIG", "SET", "hash-max-ziplist-entries", 0)  # HSCAN returns all of a small hash at once


@pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
@pytest.mark.parametrize("game", range(2 * GAMES))
def test_small_batches_answer_as_the_line(server: Any, small: None, game: int) -> None:
    compare(server, game + 1000, finish=True)


@pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
def test_a_holder_that_is_adopted_during_a_check_counts(server: Any, small: None) -> None:
    queue = open_store(server.url).queue()
    try:
        holders = []
        for number in range(40):
            spec = LockSpec(f"n{SEPARATOR}adopted {number}", 1, 30, line_steps.LONG)
            holders.append(Claim(fresh_id(), spec, "it lives"))
            dead = [Claim(fresh_id(), spec._replace(capacity=20, ttl=line_steps.BRIEF)) for _ in range(12)]
            for claim in (holders[-1], *dead):
                assert queue.enter(claim, None, False, False).state == "using"
        step_clock(server, line_steps.PASS)
        for number, claim in enumerate(holders):
            for _ in range(number % 12):  # each step checks a few of the holders
                queue.renew([claim._replace(id="nobody")])
            adopted = claim._replace(id=fresh_id())
            assert queue.adopt(claim.spec.key, claim.id, adopted) is not None
            for _ in range(number % 7):
                queue.renew([adopted])
            more = [claim._replace(id=fresh_id()) for _ in range(30)]
            assert [queue.enter(each, None, False, False).state for each in more] == 29 * ["using"] + ["refused"]
    finally:
        queue.close()


@pytest.mark.parametrize("game", range(GAMES))
def test_files_answer_as_the_line(
    game: int, tmp_path: Path, pass_time: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_queue, "native", None)
    same(game, two_paths(tmp_path), pass_time)


@pytest.mark.parametrize("game", range(2 * GAMES))
def test_compiled_steps_of_files_answer_as_the_line(game: int, tmp_path: Path) -> None:
    pytest.importorskip("interlock.stores.files._fast_path")
    same(game, two_paths(tmp_path), None)  # their clock is the system's


def two_paths(folder: Path) -> list[FileStore]:
    """Return one folder by two paths: as of two processes, no open file is shared."""
    (folder / "link").symlink_to(folder / "locks")
    return [FileStore.from_url(urlsplit((folder / name).as_uri())) for name in ("locks", "link")]


@pytest.mark.parametrize("game", range(GAMES))
def test_sqlite_answers_as_the_line(game: int, tmp_path: Path, pass_time: Callable[[float], None]) -> None:
    same(game, [open_store(f"sqlite:///{tmp_path}/locks.db")] * 2, pass_time)


@pytest.mark.parametrize("game", range(GAMES))
def test_texts_that_are_swapped_answer_as_the_line(game: int, pass_time: Callable[[float], None]) -> None:
    same(game, [TextStore(Texts(lambda: clock.time_of_day()))] * 2, pass_time)


@pytest.mark.parametrize("game", [0, 3, 6])  # two with hand-overs; leases end once or twice, which is waited for
def test_etcd_answers_as_the_line(game: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_steps, "RECORD", line_steps.LONG)
    began, passed = clock.now(), 0.0

    def pass_time(seconds: float) -> None:
        nonlocal passed
        passed += seconds
        time.sleep(seconds + 2.0)  # etcd's clock can't be set, and its leases are whole seconds and one more

    url = next(row for row in ROWS if row.name == "etcd").place(tmp_path).url
    same(game, [open_store(url)] * 2, pass_time, lambda: passed - (clock.now() - began))
