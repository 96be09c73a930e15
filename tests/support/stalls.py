"""`./dev stalls [WORDS FOR PYTEST…]`: run tests on a machine that stalls, as busy machines do.

A control group stops all processes of the run, including the servers, together for part of a second every few seconds
(see "Control Group v2" in the kernel's documentation; needs root).  A test that fails mistakes a stall for a fault.
"""

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from interlock.testing import waiting

GROUPS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
STALL = (0.3, 0.7)  # seconds
APART = (1.0, 5.0)  # seconds between two stalls
TOLD = "STALLS_OF_THE_TESTS"  # the environment variable with the file that has the total seconds of all stalls


def pytest_configure() -> None:
    """As a pytest plugin: exclude the stalls from the time bounds of tests."""
    counted = waiting._stalled
    waiting._stalled = lambda: counted() + float(Path(os.environ[TOLD]).read_text())


class Stopped:
    """A control group whose processes can be stopped together."""

    def __init__(self) -> None:
        top = next((each for each in GROUPS if (each / "cgroup.procs").exists()), None)
        if top is None or not os.access(top, os.W_OK):
            raise SystemExit("stalls: run it as root, on a Linux with control groups of version 2")
        self.folder = top / f"stalls-{os.getpid()}"
        self.folder.mkdir()

    def join(self) -> None:
        """Move the calling process into the group."""
        (self.folder / "cgroup.procs").write_text("0")

    def stop_for(self, seconds: float) -> float:
        """Stop all processes of the group; return for how many seconds."""
        began = time.monotonic()
        (self.folder / "cgroup.freeze").write_text("1")
        time.sleep(seconds)
        (self.folder / "cgroup.freeze").write_text("0")
        return time.monotonic() - began

    def remove(self) -> None:
        """Kill the processes that are left in the group, and remove it."""
        (self.folder / "cgroup.kill").write_text("1")
        waiting.eventually(lambda: not (self.folder / "cgroup.procs").read_text())
        self.folder.rmdir()


def _ends(run: "subprocess.Popen[bytes]", within: float) -> bool:
    try:
        run.wait(within)
    except subprocess.TimeoutExpired:
        return False
    return True


def main() -> int:
    """Run pytest in such a group; return its exit status."""
    group = Stopped()
    stalled = 1e-9  # 0 stands for a machine that does not count: see `since`
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder, "stalled")
        told.write_text(str(stalled))
        command = [sys.executable, "-m", "pytest", "-p", "tests.support.stalls", *sys.argv[1:]]
        try:
            run = subprocess.Popen(command, env={**os.environ, TOLD: str(told)}, preexec_fn=group.join)
            while not _ends(run, random.uniform(*APART)):
                stalled += group.stop_for(random.uniform(*STALL))
                told.with_suffix(".new").write_text(str(stalled))
                os.replace(told.with_suffix(".new"), told)
        finally:
            group.remove()
    print(f"stood still for {stalled:.1f} s in all", flush=True)
    return run.returncode


if __name__ == "__main__":
    sys.exit(main())
