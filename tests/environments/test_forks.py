"""uWSGI and C code fork without Python's hooks: parent and child still count as two processes."""

import sys

import pytest

from tests.environments.conftest import Run

PLAY = """
import ctypes, json, os, sys, tempfile, time
import interlock
url, folder = sys.argv[1], tempfile.mkdtemp()
locks = interlock.connect(url, namespace=os.path.basename(folder))
def inside():
    try:
        fd = os.open(folder + "/inside", os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        return True
    time.sleep(0.001)
    os.close(fd)
    os.unlink(folder + "/inside")
    return False
with locks.lock("a"): pass
held = locks.lock("held by the parent").acquire()
pid = ctypes.PyDLL(None).fork()
told = {"owns": pid == 0 and (held.held or held.release() or held.renew() or held.expires_in > 0), "two": 0, "in": 0}
end = time.monotonic() + 20
while told["in"] < 10 and time.monotonic() < end:
    grant = locks.lock("a").acquire(timeout=3 if told["in"] % 2 else 0)
    if grant:
        told["two"] += inside()
        told["in"] += 1
        grant.release()
if pid == 0:
    locks.close()
    print("child", json.dumps(told), flush=True)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
told["owns"] = not (held.held and held.release())
print("parent", json.dumps(told))
"""


def test_a_process_that_forked_without_pythons_hooks_is_two(url: str, run: Run) -> None:
    for line in run(PLAY, url).splitlines():
        assert line.split(" ", 1)[1] == '{"owns": false, "two": 0, "in": 10}', line


AT_EXIT = """
import atexit, ctypes, os, sys, threading, time
import interlock
locks, others = interlock.connect(sys.argv[1]), interlock.connect(sys.argv[1])
held = locks.lock("held").acquire()
before = others.lock("a").acquire()
told = []
waits = threading.Thread(target=lambda: told.append(locks.lock("a").acquire().release()))
waits.start()
while len(line := [each.id for each in others.claims("a")]) < 2: time.sleep(0.005)
pid = ctypes.PyDLL(None).fork()
if pid == 0:
    atexit._run_exitfuncs()
    os._exit(0)
os.waitpid(pid, 0)
told += line == [each.id for each in others.claims("a")], held.release(), before.release()
waits.join()
print(told)
"""


def test_an_exiting_child_withdraws_no_claim_of_its_parent(url: str, run: Run) -> None:
    if "advisory" in url:
        pytest.skip("nobody sees who waits for the lock of a session")
    assert run(AT_EXIT, url) == "[True, True, True, True]"


KEYS = """
import ctypes, os, sys
import redis
from interlock.redis import ClientLock, KeyLock
client = redis.Redis.from_url(sys.argv[1])
lock = {kind}(client, "key", **({{"ttl": 30}} if {kind} is KeyLock else {{}}))
assert lock.acquire()
pid = ctypes.PyDLL(None).fork()
if pid == 0:
    try:
        lock.release()
    finally:
        os._exit(0)
os.waitpid(pid, 0)
print(bool(client.exists("key")), lock.release() is not False)
"""


@pytest.mark.parametrize("kind", ["KeyLock", "ClientLock"])
def test_a_child_frees_no_key_of_its_parents(kind: str, run: Run, redis_url: str) -> None:
    assert run(KEYS.format(kind=kind), redis_url) == "True True"


CLEARED = """
import ctypes, os, sys, types
os.dup2(1, 2)
app = sys.modules["app"] = types.ModuleType("app")
import interlock
app.kept = interlock.connect(sys.argv[1]).lock("a").acquire()
for module in [*sys.modules.values()]:  # as if code in C knew them: each is cleared at the end, the last one first
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(module))
pid = ctypes.PyDLL(None).fork()
if pid:
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), app.kept.release())
"""


def test_a_parents_grant_dropped_at_the_childs_exit_is_silent(url: str, run: Run) -> None:
    said = run(CLEARED, url)
    if "pymysql" in said:  # its own connections are closed at the end, now and then when `io` is cleared
        assert "mysql" in url
        assert "interlock" not in said.replace(sys.prefix, "")  # the checkout may have this name, too
        said = said.splitlines()[-1]
    assert said == "0 True"
