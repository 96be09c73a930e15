"""Runs of torture on private stores, or on one at a URL, each struck by every fault that it can have."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.torture import Plan, Verdict, judge, run
from tests.torture.faults import possible
from tests.torture.history import read
from tests.torture.plan import promises_of
from tests.torture.sentinel import TorturedSentinel
from tests.torture.server import SERVERS

LOCAL: dict[str, Callable[[Path], str]] = {
    "file": lambda disk: f"file://{disk / 'locks'}",
    "sqlite": lambda disk: f"sqlite:///{disk / 'locks.db'}",
}
STORES = (*LOCAL, *SERVERS, "valkey+sentinel")


@contextmanager
def small_disk(path: Path) -> Iterator[Path]:
    """Mount a small file system, which only root can; else return the folder as it is."""
    path.mkdir()
    if os.geteuid() != 0:
        yield path
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m,mode=0755", "none", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def tortured(kind: str, folder: Path, **how: Any) -> Verdict:
    """Run one store; return what the judge says.

    Args:
        kind: one of STORES, or the URL of a store that nobody else uses.
        folder: an empty one, for the store and the history.
        how: of the plan; its faults are all that the store can have unless given.
    """
    if kind in LOCAL:
        with small_disk(folder / "disk") as disk:
            return _judged(LOCAL[kind](disk), None, folder, how)
    if ":" in kind:
        return _judged(kind, None, folder, how)
    with TorturedSentinel() if kind == "valkey+sentinel" else SERVERS[kind]() as server:
        return _judged(server.url, server, folder, server.how | how)


def _judged(url: str, server: Any, folder: Path, how: dict[str, Any]) -> Verdict:
    if url.startswith("memory:"):  # is one process
        how = {**how, "procs": 1, "colour": "threads"}
    can = tuple(possible(url, how.get("colour", "both"), server))
    if wrong := set(how.get("faults", ())) - set(can):
        raise ValueError(f"no run on {url} can make {', '.join(sorted(wrong))}: it has {', '.join(can)}")
    # A clock that is set back lets fences run ahead of it, so they fall when the data are lost before it is there.
    together = tuple(name for name in can if name != "behind" or not {"wipe", "empty"} & {*can})
    plan = Plan(url, **{"faults": together, **promises_of(url), **how})
    return judge(read(run(plan, folder / "run", server)))
