"""A stopped process and a suspended machine: a holder that slept past its lease learns of the loss at once.

No test can suspend the machine.  During a suspend, CLOCK_BOOTTIME goes on and CLOCK_MONOTONIC stands still.  A time
namespace of the kernel simulates that for a process of one thread; a preloaded library simulates it for any process.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import interlock
from tests.environments.conftest import Run
from tests.servers import need
from tests.servers.clock import compiled
from tests.support.cli_processes import Process

STOPPED = """
import asyncio, sys
import interlock
def told(grant):
    print("in", flush=True)
    sys.stdin.readline()
    try:
        grant.check()
        return "held"
    except interlock.LockLost:
        return "lost"
async def tasks():
    async with interlock.aconnect(sys.argv[1]) as locks:
        grant = await locks.lock("x", ttl=1).acquire()
        print(told(grant), await grant.release(), flush=True)
if sys.argv[2] == "tasks":
    asyncio.run(tasks())
else:
    grant = interlock.connect(sys.argv[1]).lock("x", ttl=1).acquire()
    print(told(grant), grant.release(), flush=True)
"""


@pytest.mark.parametrize("sync_or_async", ["threads", "tasks"])
def test_a_process_stopped_past_its_lease_fails_its_first_check(sync_or_async: str, url: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(STOPPED)
    words = [sys.executable, "program.py", url, sync_or_async]
    with Process(words, cwd=tmp_path, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.read_line() == "in"
        process.send_signal(signal.SIGSTOP)
        with interlock.connect(url) as locks:
            session = "advisory" in url  # its lease is its connection, which lives
            grant = locks.lock("x").acquire(timeout=1.5 if session else 20)
            assert (grant is None) is session
            process.send_signal(signal.SIGCONT)
            process.say("look")
            assert process.read_line() == "lost False"
            assert grant is None or grant.release()


ELSEWHERE = ["valkey", "postgresql", "mariadb", "postgresql+advisory", "mysql+advisory"]
SUSPENDED = """
import os, struct, sys, time
import interlock
locks = interlock.connect(sys.argv[1])
with locks.lock("first"): pass
grant = locks.lock("x", ttl=5).acquire()
with open(os.environ["SERVER_CLOCK"], "r+b") as clock: clock.write(struct.pack("=q", 3600 * 10**9))
try:
    grant.check()
    print("held")
except interlock.LockLost:
    print("lost")
grant.release()
with locks.lock("x", timeout=20): print("in")
"""


@pytest.mark.parametrize("url", [*ELSEWHERE, "file", "sqlite"], indirect=True)
def test_of_a_store_elsewhere_the_hours_asleep_count(url: str, run: Run, tmp_path: Path) -> None:
    need("clock")
    (tmp_path / "clock").write_bytes(bytes(8))
    library = compiled(tmp_path)
    found = run(SUSPENDED, url, LD_PRELOAD=str(library), SERVER_CLOCK=str(tmp_path / "clock"), SLEEPS="1")
    # Who shares the machine has slept as long.
    assert found.split() == ["held" if url.partition(":")[0] in ("file", "sqlite") else "lost", "in"]


BY_KERNEL = """
import asyncio, ctypes, os, sys, time
import interlock
NEWTIME, libc = 0x80, ctypes.CDLL(None, use_errno=True)
def suspend():
    ready, made = os.pipe()
    done, end = os.pipe()
    if not (pid := os.fork()):
        if not libc.unshare(NEWTIME):
            with open("/proc/self/timens_offsets", "w") as offsets: offsets.write("boottime 3600 0")
            os.write(made, b"!")
        os.close(made)
        os.read(done, 1)
        os._exit(0)
    os.close(made)
    if not os.read(ready, 1):
        sys.exit("refused")
    there = os.open(f"/proc/{pid}/ns/time_for_children", os.O_RDONLY)
    assert not libc.setns(there, NEWTIME), os.strerror(ctypes.get_errno())
    os.write(end, b"!")
    os.waitpid(pid, 0)
async def main():
    async with interlock.aconnect(sys.argv[1]) as locks:
        grant = await locks.lock("x", ttl=5).acquire()
        before = time.monotonic()
        suspend()
        lost = grant.lost
        print(lost, time.monotonic() - before < 60)
        await grant.release()
        async with locks.lock("x", timeout=20): print("in")
asyncio.run(main())
"""


@pytest.mark.parametrize("url", ["valkey", "postgresql"], indirect=True)
def test_a_clock_that_the_kernel_sets_on_tells_tasks_of_the_loss(url: str, run: Run) -> None:
    if os.geteuid() or subprocess.run(["unshare", "--time", "true"], capture_output=True).returncode:
        pytest.skip("NOT TESTED: needs root and namespaces of time")
    assert run(BY_KERNEL, url).split() == ["True", "True", "in"]
