"""A program becomes a daemon: it closes all descriptors, and its own files and sockets get their numbers."""

import errno

import pytest

from interlock.runtime.process import sockets_are_descriptors
from tests.environments.conftest import Run

PLAY = """
import gc, os, resource, select, socket, subprocess, sys
import interlock
url = sys.argv[1]
MOST = min(1024, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
def beside():
    code = f"import interlock; print(bool(interlock.connect({url!r}).lock('a').acquire(timeout=0.3)))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()
def locked(locks):
    for tries in range(2):
        try:
            with locks.lock("a", timeout=10):
                return beside()
        except interlock.StoreError as error:  # an error may report the closed connection once
            said = error
    return said
locks = interlock.connect(url)
with locks.lock("a"): pass
os.closerange(3, MOST)
print(locked(locks), locked(interlock.connect(url)))
os.closerange(3, MOST)
pairs = [socket.socketpair() for _ in range(20)]
files = [open(f"file{number}", "w+b") for number in range(20)]
print(locked(locks))
locks.close()
gc.collect()  # the reported error still refers to the failed connection
print(sum(os.fstat(file.fileno()).st_size for file in files))
print(len(select.select([each for pair in pairs for each in pair], [], [], 0)[0]))
sys.stdout.flush()
os._exit(0)
"""


def test_threads_write_nothing_to_reused_descriptors(url: str, run: Run) -> None:
    assert run(PLAY, url).splitlines() == ["False False", "False", "0", "0"]


TASKS = """
import asyncio, gc, os, select, socket, subprocess, sys
import interlock
url = sys.argv[1]
def taken():
    return {fd for fd in range(3, 200) if os.path.lexists(f"/proc/self/fd/{fd}")}
async def beside():
    code = f"import interlock; print(bool(interlock.connect({url!r}).lock('a').acquire(timeout=0.3)))"
    words = [sys.executable, "-c", code]
    return (await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True)).stdout.strip()
async def locked(locks):
    for tries in range(2):
        try:
            async with locks.lock("a", timeout=10):
                return await beside()
        except interlock.StoreError as error:  # an error may report the closed connection once
            said = error
    return said
async def within():  # the loop has descriptors of its own: those stay
    await asyncio.to_thread(int)
    of_loop = taken()
    locks = interlock.aconnect(url)
    async with locks.lock("a"): pass
    for fd in taken() - of_loop: os.close(fd)
    print(await locked(locks))
    for fd in taken() - of_loop: os.close(fd)
    pairs, files = others()
    print(await locked(locks))
    await locks.close()
    tell(pairs, files)
async def once(locks):
    print(await locked(locks))
def others():
    return [socket.socketpair() for _ in range(10)], [open(f"file{number}", "w+b") for number in range(20)]
def tell(pairs, files):
    gc.collect()  # the reported error still refers to the failed connection
    print(sum(os.fstat(file.fileno()).st_size for file in files), end=" ")
    print(len(select.select([each for pair in pairs for each in pair], [], [], 0)[0]), flush=True)
asyncio.run(within())
locks = interlock.aconnect(url)
asyncio.run(once(locks))
os.closerange(3, 1000)  # between two loops, of which the first ended without `close`
pairs, files = others()
asyncio.run(once(locks))
asyncio.run(locks.close())
del locks
tell(pairs, files)
os._exit(0)
"""


def test_tasks_leave_reused_descriptors_alone(url: str, run: Run) -> None:
    if url.startswith("etcd"):
        pytest.skip("httpx leaves its sockets to asyncio, which closes their numbers: connect after they were closed")
    assert run(TASKS, url, PYTHONWARNINGS="ignore").splitlines() == ["False", "False", "0 0", "False", "False", "0 0"]


def test_a_program_that_may_use_unix_sockets_only_has_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under systemd's RestrictAddressFamilies=AF_UNIX."""

    def refuse() -> None:
        raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")

    sockets_are_descriptors.cache_clear()
    monkeypatch.setattr("socket.socket", refuse)
    try:
        assert sockets_are_descriptors()
    finally:
        sockets_are_descriptors.cache_clear()
