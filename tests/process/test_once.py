"""Records of completed runs after a crash of the server that keeps them, or of the process that runs."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import interlock
from interlock.api.connect import open_store
from interlock.testing.contract.once import Work
from interlock.testing.other_process import Remote
from interlock.testing.store_fixture import TASKS, THREADS, ContractWorld, StoreFixture
from interlock.testing.waiting import eventually
from tests.servers import EtcdServer, MariaServer, PostgresServer, RedisServer, need

MINUTE = 60.0
RUNS = 20
"""A server that forgets the last moment of its commits has forgotten some of them."""


class Crashing(NamedTuple):
    """A server that can be killed.

    Attributes:
        kind: as for `need`.
        start: makes one.
        options: of its URL.
        keeps: False if it forgets everything.
    """

    kind: str
    start: Callable[[], Any]
    options: str = ""
    keeps: bool = True


SERVERS = {
    # Its commits are asynchronous unless a step makes them durable.
    "postgresql": Crashing("postgres", PostgresServer, "?grace=1"),
    "mariadb": Crashing("mariadb", MariaServer),
    "etcd": Crashing("etcd", EtcdServer),
    "valkey, always": Crashing("valkey", lambda: RedisServer(persist=True)),
    "valkey, everysec": Crashing("valkey", lambda: RedisServer(persist=True, config={"appendfsync": "everysec"})),
    "valkey, no persistence": Crashing("valkey", RedisServer, keeps=False),
}


@pytest.mark.parametrize("sync_or_async", [THREADS, TASKS])
@pytest.mark.parametrize("name", SERVERS)
def test_what_a_killed_server_knows_of_completed_runs(name: str, sync_or_async: str) -> None:
    kind, start, options, keeps = SERVERS[name]
    need(kind)
    with ExitStack() as ends:
        server = ends.enter_context(start())
        url = server.url + options
        world = ContractWorld(StoreFixture(open=lambda: open_store(url, tasks=sync_or_async == TASKS)), sync_or_async)
        ends.callback(world.close)
        work, ann, fences = Work(world), world.actor(), []
        locks = world.connect()

        def run(locks: Any, number: int) -> Any:
            return ann.do(locks.once(f"import {number}", keep=MINUTE, timeout=30).run, work.function)["run"]

        def fence(locks: Any) -> None:
            ann.within(locks.lock("fence", timeout=30), lambda grant: fences.append(grant.fence))

        fence(locks)
        assert [run(locks, number) for number in range(RUNS)] == list(range(1, RUNS + 1))
        server.kill()
        server.start()
        kept = list(range(1, RUNS + 1)) if keeps else list(range(RUNS + 1, 2 * RUNS + 1))
        assert [run(locks, number) for number in range(RUNS)] == kept
        assert [run(world.connect(), number) for number in range(RUNS)] == kept
        assert work.runs == kept[-1]
        fence(locks)
        assert fences[-1] > fences[0]


RUNNING = """
def work():
    print(file=open({mark!r}, "w"))
    import time
    time.sleep(600)

locks.once("import", keep=60, ttl=2).run(work)
"""


def test_a_run_whose_process_is_killed_is_done_by_the_next_one(
    locks: interlock.Locks, remote: Callable[[], Remote], tmp_path: Path
) -> None:
    mark, runner = tmp_path / "mark", remote()
    runner.start(RUNNING.format(mark=str(mark)))
    eventually(mark.exists)
    (view,) = locks.claims("import")
    assert locks.once("import", keep=MINUTE, on_busy="skip").run(lambda: "too soon") is None
    runner.kill()
    with locks.once("import", keep=MINUTE, timeout=30) as run:
        assert run.due
        assert run.grant.fence > view.fence
        run.result = "done"
    assert locks.once("import", keep=MINUTE).run(lambda: "again") == "done"


def test_a_record_in_a_folder_outlives_a_restart_of_the_machine(folder: Path) -> None:
    with interlock.connect(folder.as_uri()) as locks:
        assert locks.once("import", keep=MINUTE).run(lambda: "first") == "first"
    marker = folder / "interlock"
    marker.write_bytes(marker.read_bytes().replace(b"boot=", b"boot=f"))
    with interlock.connect(folder.as_uri()) as locks:
        assert locks.once("import", keep=MINUTE).run(lambda: "again") == "first"
