"""Unusual interpreters: in a subinterpreter, after the main thread, at exit, in a loop of anyio."""

import pytest

from tests.environments.conftest import Run
from tests.servers import RedisServer, need

SUB = """
import sys
try:
    import _interpreters as subs
except ImportError:
    import _xxsubinterpreters as subs
here = subs.create()
code = '''
import sys
sys.path[:] = {path!r}
import interlock
try:
    with interlock.connect({url!r}).lock("a"): print("in", flush=True)
except interlock.StoreError as error:
    print("main interpreter" in str(error), flush=True)
'''
(subs.exec if hasattr(subs, "exec") else subs.run_string)(here, code.format(path=sys.path, url=sys.argv[1]))
"""


def test_a_subinterpreter_without_threads_is_told_so(url: str, run: Run) -> None:
    if url.startswith("etcd"):
        pytest.skip("httpx starts a program when it is imported, which a subinterpreter may not")
    assert run(SUB, url) in ("True", "in")  # where it may have threads, it may lock


AFTER = """
import asyncio, sys, threading
def late():
    threading.main_thread().join()
    import interlock
    with interlock.connect(sys.argv[1]).lock("a"): print("in", flush=True)
    async def lock():
        async with interlock.aconnect(sys.argv[1]) as locks, locks.lock("a"): print("in", flush=True)
    asyncio.run(lock())
threading.Thread(target=late).start()
"""


def test_who_connects_after_the_main_thread_has_ended_can_lock(url: str, run: Run) -> None:
    assert run(AFTER, url).splitlines() == ["in", "in"]


SAVE = """
import atexit, logging, sys
def save():
    with locks.lock("state", timeout=10): print("saved", flush=True)
class Handler(logging.Handler):
    def close(self):
        save()
        super().close()
atexit.register(save)
logging.getLogger("z").addHandler(Handler())
import interlock
locks = interlock.connect(sys.argv[1])
with locks.lock("a"): pass
"""


def test_what_was_registered_before_may_lock_at_exit(url: str, run: Run) -> None:
    assert run(SAVE, url).splitlines() == ["saved", "saved"]


ANYIO = """
import os, signal, sys, time
import anyio, interlock
async def main():
    locks = interlock.aconnect(sys.argv[1])
    async with locks.lock("first"): pass
    with anyio.CancelScope() as scope:
        async with locks.lock("x"):
            os.kill(int(sys.argv[2]), signal.SIGSTOP)
            began = time.process_time()
            scope.cancel()
            await anyio.sleep(5)
    print(time.process_time() - began < 0.5)
try:
    anyio.run(main)
finally:
    os.kill(int(sys.argv[2]), signal.SIGCONT)
"""


def test_a_cancelled_anyio_scope_does_not_spin_in_an_outage(run: Run) -> None:
    need("valkey")
    with RedisServer("valkey") as server:
        assert run(ANYIO, server.url, str(server.pid)) == "True"
