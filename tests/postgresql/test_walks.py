"""A random walk over many names on one session: no two holders, and nothing is left behind."""

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import interlock
from tests.postgresql.conftest import Ask

NAMES = [f"name {number}" for number in range(20)]
WALKERS = 4
STEPS = 60
CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'interlock'"
ADVISORY = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"


class Guarded:
    """What the locks guard: who is there with a name, and the fences that came."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._inside: dict[str, int] = {}
        self.last: dict[str, int] = {}
        self.visits = 0

    def visit(self, name: str, fence: int) -> None:
        """Be there for a moment."""
        with self._mutex:
            assert self._inside.setdefault(name, threading.get_ident()) == threading.get_ident(), "two holders"
            assert fence > self.last.get(name, 0)
            self.last[name] = fence
            self.visits += 1
        threading.Event().wait(0.0005)
        with self._mutex:
            del self._inside[name]


def walked(walk: Callable[[random.Random], None]) -> None:
    """Let several threads walk, each with a seed of its own that is always the same."""
    with ThreadPoolExecutor(WALKERS) as pool:
        for done in [pool.submit(walk, random.Random(f"walker {number}")) for number in range(WALKERS)]:
            done.result(120)


def test_a_walk_over_a_table_by_one_session_leaves_nothing(url: str, ask: Ask, role: Callable[[str], None]) -> None:
    role("synchronous_commit = on")  # steps switch it off, each for itself
    guarded = Guarded()
    with interlock.connect(f"{url}&max_connections=1") as locks, interlock.connect(url) as others:

        def walk(chance: random.Random) -> None:
            for _ in range(STEPS):
                name = chance.choice(NAMES)
                way = chance.choice(("with", "try", "short", "long lease", "all", "evicted"))
                if way == "all":
                    with locks.all(*chance.sample(NAMES, 3), timeout=60) as grants:
                        for grant in grants:
                            guarded.visit(grant.name, grant.fence)
                    continue
                if way == "evicted":
                    locks.evict(f"nobody's {name}")
                    continue
                waits: Any = {"try": {"blocking": False}, "short": {"timeout": 0.01}}.get(way, {"timeout": 60})
                grant = locks.lock(name, ttl=60 if way == "long lease" else 10).acquire(**waits)
                if grant is not None:
                    guarded.visit(name, grant.fence)
                    assert grant.release() is True

        walked(walk)
        assert guarded.visits > WALKERS * STEPS / 2
        assert [view for name in NAMES for view in others.claims(name)] == []
        assert ask(ADVISORY) == [(0,)]
        assert ask(CONNECTIONS)[0][0] <= 2 * 2  # one for steps, one that listens, of each
