"""uWSGI: the module connects and locks in the master, and C code forks the workers."""

import http.client
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.servers import Uwsgi, need

APP = """
import json, os, signal, time
import interlock
locks = interlock.connect(os.environ["LOCKS"])
with locks.lock("a"): pass
# Without a renewal while it forks: uWSGI takes no GIL before, and a child of a moment in which a thread had it hangs.
of_master = locks.lock(f"of the master {time.time()}", ttl=600).acquire()
time.sleep(0.2)  # until the thread that would renew it has come to rest
LOADED = time.time()
kept = []
def who():
    return {}
def play():
    told = {"two": 0, "in": 0, "owns": of_master.held or of_master.release() or of_master.expires_in > 0}
    for _ in range(10):
        with locks.lock("a", timeout=30):
            try:
                os.close(os.open("inside", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                told["two"] += 1
            time.sleep(0.001)
            os.unlink("inside")
            told["in"] += 1
    return told
def hold():  # for longer than the lease
    with locks.lock("held", ttl=1, timeout=30) as grant:
        time.sleep(1.5)
        return {"held": grant.held}
def keep():  # for longer than the request
    kept.append(locks.lock("kept", ttl=1).acquire(timeout=2))
    return {"kept": kept[-1] is not None}
def die():
    kept.append(locks.lock("a", ttl=2).acquire())
    os.kill(os.getpid(), signal.SIGKILL)
def application(environ, start):
    told = globals()[environ["PATH_INFO"].strip("/") or "who"]()
    start("200 OK", [])
    return [json.dumps({"pid": os.getpid(), "loaded": LOADED, **told}).encode()]
"""


@pytest.mark.rare
@pytest.mark.parametrize("options", [[], ["--threads", "3"]], ids=["one thread", "threads"])
def test_workers_that_uwsgi_forks_exclude_each_other(options: list[str], url: str) -> None:
    need("uwsgi")
    with Uwsgi(APP, {"LOCKS": url}, options) as server, ThreadPoolExecutor(8) as pool:
        told = list(pool.map(server.ask, ["play"] * 12))
        assert [(each["two"], each["in"], each["owns"]) for each in told] == [(0, 10, False)] * 12
        assert len({each["pid"] for each in told}) > 1
        assert [each["held"] for each in pool.map(server.ask, ["hold"] * 3)] == [True] * 3
        assert server.ask("keep")["kept"]
        assert not server.ask("keep")["kept"]  # it was renewed between the requests
        with pytest.raises(http.client.RemoteDisconnected):
            server.ask("die")
        assert server.ask("play")["in"] == 10
        server.reload()
        assert [each["in"] for each in pool.map(server.ask, ["play"] * 3)] == [10] * 3
        server.stop()
        for wrong in ("Traceback", "Segmentation Fault", "Exception ignored"):
            assert wrong not in server.log.read_text()
