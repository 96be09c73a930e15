"""Torture runs on private stores, or on a store at a URL, with every possible fault."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.torture.coordinator import run
from tests.torture.faults import possible
from tests.torture.history import read
from tests.torture.judge import Verdict, judge
from tests.torture.plan import Plan, promises_of
from tests.torture.sentinel import TorturedSentinel
from tests.torture.server import SERVERS
from tests.torture.windows import tortured_on_windows

LOCAL: dict[str, Callable[[Path], str]] = {
    "file": lambda disk: f"file://{disk / 'locks'}",
    "sqlite": lambda disk: f"sqlite:///{disk / 'locks.db'}",
    "share": lambda disk: shared(disk / "locks"),
}
ON_WINDOWS = {"windows+file": "file", "windows+sqlite": "sqlite"}
"""Only if they are named, since they need wine."""
STORES = (*LOCAL, *SERVERS, "valkey+sentinel")


BRIEF: dict[str, Any] = {
    "connect": "tests.support.brief_share:connect", "aconnect": "tests.support.brief_share:aconnect", "ttl": 1.0,
    "shortest": 0.3,
}  # fmt: skip
"""Options for a shared folder with leases as short as those of other stores; users may have 10 s at least."""


def shared(folder: Path) -> str:
    """Make a folder for locks, and return its URL."""
    folder.mkdir()
    return f"share://{folder}"


@contextmanager
def small_disk(path: Path, size: str = "16m") -> Iterator[Path]:
    """Mount a small file system, as root; otherwise return the folder unchanged."""
    path.mkdir()
    if os.geteuid() != 0:
        yield path
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0755", "none", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def tortured(kind: str, folder: Path, **how: Any) -> Verdict:
    """Run one store; return the verdict.

    Args:
        kind: one of STORES or ON_WINDOWS, or the URL of a store without other users.
        folder: an empty folder for the store and the history.
        how: options of the plan; the default for the faults is all possible ones.
    """
    if kind in LOCAL:
        with small_disk(folder / "disk") as disk:
            return _judged(LOCAL[kind](disk), None, folder, (BRIEF if kind == "share" else {}) | how)
    if kind in ON_WINDOWS:
        return tortured_on_windows(ON_WINDOWS[kind], f"torture-{os.getpid()}", **how)
    if ":" in kind:
        return _judged(kind, None, folder, how)
    with TorturedSentinel() if kind == "valkey+sentinel" else SERVERS[kind]() as server:
        return _judged(server.url, server, folder, server.how | how)


def _judged(url: str, server: Any, folder: Path, how: dict[str, Any]) -> Verdict:
    if url.startswith("memory:"):  # one process only
        how = {**how, "procs": 1, "colour": "threads"}
    can = tuple(possible(url, how.get("colour", "both"), server))
    if wrong := set(how.get("faults", ())) - set(can):
        raise ValueError(f"no run on {url} can make {', '.join(sorted(wrong))}: it has {', '.join(can)}")
    # After a clock was set back fences are ahead of it; if the data are lost then, new fences are lower.
    together = tuple(name for name in can if name != "behind" or not {"wipe", "empty"} & {*can})
    plan = Plan(url, **{"faults": together, **promises_of(url), **how})
    return judge(read(run(plan, folder / "run", server)))
