"""Torture of `file://` and `sqlite://` on Windows: the workers run in Windows' Python under wine.

The coordinator stays on this system, so that it can also stop a worker: wine's processes are processes of Linux.
Each worker has a file of its own for its history, because Windows has no O_APPEND.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tests.servers.windows import FOLDER, WindowsPython
from tests.torture.coordinator import Coordinator, WorkerProcess
from tests.torture.history import read
from tests.torture.judge import Verdict, judge
from tests.torture.plan import LONG_WAIT, Plan, promises_of

FAULTS = ("kill", "stop", "close", "cancel", "loop")
"""The possible faults: Windows has no forks and no signals, and nobody can remove a living file."""

LEFT = """
import json, sys, time, interlock
deadline = time.monotonic() + float(sys.argv[3])
with interlock.connect(sys.argv[1], namespace=sys.argv[2]) as locks:
    while time.monotonic() < deadline:
        claims = locks.claims()
        for view in claims:
            if view.name.startswith("once:"):
                locks.forget(view.name)
        if not claims:
            break
        time.sleep(0.05)
print("left", json.dumps([f"{view.name} {view.state} of {view.pid}" for view in claims]))
"""
"""A program that prints which claims are left after all leases have had time to expire."""

DRIVE = FOLDER / "prefix" / "drive_c"


class WineWorker(WorkerProcess):
    """A worker process of Windows."""

    _copies: list[subprocess.Popen[bytes]] = []
    """They end with the processes whose errors they copy."""

    @contextmanager
    def errors_into(self, file: IO[bytes]) -> Iterator[IO[bytes]]:
        """Return a pipe: wine gives Python no file as a standard stream."""
        reading, writing = os.pipe()
        self._copies[:] = [each for each in self._copies if each.poll() is None]
        self._copies.append(subprocess.Popen(["cat"], stdin=reading, stdout=file, start_new_session=True))
        os.close(reading)
        with open(writing, "wb") as pipe:
            yield pipe

    def facts(self, folder: Path) -> dict[str, Any]:
        """Return an empty search path, and a history for this process."""
        return {"path": [], "history": f"C:/{folder.relative_to(DRIVE)}/history-{self.key}"}

    def command(self) -> list[str]:
        """Return the command that runs a worker."""
        return WindowsPython().command("-m", "tests.torture.worker")

    def environment(self) -> dict[str, str]:
        """Return the environment of that command."""
        return WindowsPython().environment()


class WineCoordinator(Coordinator):
    """A run whose workers are processes of Windows."""

    workers = WineWorker

    def left(self) -> dict[str, Any]:
        """Return the claims that are left in the store; Windows must read them."""
        seconds = 4 * (2 * self._plan.ttl + self._plan.slack + self._plan.io)  # it forgets hundreds of records
        ran = WindowsPython().run(
            "-c", LEFT, self._plan.store, self._plan.namespace, str(seconds), timeout=LONG_WAIT + 2 * seconds
        )
        found = [line.removeprefix("left ") for line in ran.stdout.splitlines() if line.startswith("left ")]
        return {"claims": json.loads(found[-1]) if found else [ran.stdout[-500:]], "files": []}


def tortured_on_windows(kind: str, name: str, **how: Any) -> Verdict:
    """Run one store; return the verdict.

    Args:
        kind: "file" or "sqlite".
        name: the name of a new folder on drive C:.
        how: options of the plan; the default for the faults is all possible ones.
    """
    folder = DRIVE / name
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "run").mkdir(parents=True)
    url = f"file:///C:/{name}/locks" if kind == "file" else f"sqlite:///C:/{name}/locks.db"
    plan = Plan(url, **{"faults": FAULTS, **promises_of(url), **how})
    if wrong := set(plan.faults) - set(FAULTS):
        raise ValueError(f"no run on Windows can make {', '.join(sorted(wrong))}: it has {', '.join(FAULTS)}")
    path = WineCoordinator(plan, folder / "run", None).run()
    with open(path, "ab") as history:
        for each in sorted((folder / "run").glob("history-*")):
            history.write(each.read_bytes())
    return judge(read(path))
