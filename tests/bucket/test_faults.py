"""Faults between a lock and a bucket, on real servers."""

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from obstore.store import LocalStore, MemoryStore

import interlock
from interlock.core.errors import InvalidArgument, StoreError
from interlock.stores.bucket import BucketStore
from interlock.testing.other_process import Remote
from interlock.testing.waiting import eventually
from tests.servers import Proxy


def through(proxy: Proxy, server: Any, url: str) -> str:
    return url.replace(f"{server.host}:{server.port}", f"{proxy.host}:{proxy.port}")


def test_an_object_is_written_no_faster_than_its_server_allows() -> None:
    bucket = MemoryStore()
    with interlock.Locks(BucketStore(lambda: bucket, "locks", "a bucket", "test", pace=0.2)) as locks:
        began = time.monotonic()
        for _ in range(3):
            with locks.lock("a"):
                pass
        assert time.monotonic() - began >= 5 * 0.2


def test_a_claim_of_a_killed_process_ends_for_single_tries_too(url: str) -> None:
    remote = Remote(url)
    remote.do("grant = locks.lock('a', ttl=1).acquire()")
    remote.kill()
    with interlock.connect(url) as locks:
        assert locks.lock("a").acquire(timeout=0) is None
        eventually(lambda: locks.lock("a").acquire(timeout=0), within=10)
    remote.close()


def test_a_write_whose_answer_is_lost_is_done_once(server: Any, url: str) -> None:
    with Proxy(server.host, server.port) as proxy, interlock.connect(through(proxy, server, url)) as locks:
        locks.lock("a").acquire().release()
        proxy.cut_after_request(b"PUT")
        grant = locks.lock("a").acquire(timeout=20)
        assert [view.id for view in locks.claims("a")] == [grant.id]
        proxy.cut_after_request(b"PUT")
        assert grant.release() is True
        assert locks.claims("a") == []


def test_a_server_that_is_cut_off_is_waited_for(server: Any, url: str) -> None:
    with Proxy(server.host, server.port) as proxy, interlock.connect(through(proxy, server, url)) as locks:
        locks.lock("a").acquire().release()
        proxy.refuse()
        with pytest.raises(StoreError):
            locks.lock("a").acquire(timeout=0)
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(locks.lock("a").acquire, timeout=30)
            proxy.restore()
            assert waiting.result(30).held


FORKS = """
import ctypes, os, sys
import interlock
locks = interlock.connect(sys.argv[1])
if sys.argv[2] == "used":
    locks.lock("a").acquire().release()
for fork in (os.fork, ctypes.PyDLL(None).fork):
    if fork() == 0:
        for again in (lambda: locks, lambda: interlock.connect(sys.argv[1])):
            try:
                again().lock("a").acquire(timeout=0)
            except interlock.StoreError as error:
                print("by spawn" in str(error), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.parametrize("used", ["used", "connected"])
def test_a_forked_child_is_told_that_it_can_not_use_a_bucket(url: str, used: str) -> None:
    command = [sys.executable, "-c", FORKS, url, used]
    told = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert told.stdout.split() == ["True"] * 4


def test_wrong_keys_and_a_bucket_that_is_not_there_are_said(server: Any, url: str) -> None:
    for wrong in (url.replace(":secret@", ":5ecret@").replace(":Eby8", ":abcd"), url.replace("@locks", "@nowhere")):
        with interlock.connect(wrong) as locks, pytest.raises(StoreError) as caught:
            locks.lock("a").acquire(timeout=5)
        assert "5ecret" not in str(caught.value)


def test_an_object_store_is_accepted_only_if_it_can_swap(tmp_path: Path) -> None:
    with interlock.connect(MemoryStore()) as locks, locks.lock("a") as grant:
        assert grant.held
    with pytest.raises(InvalidArgument, match="file://"):
        interlock.connect(LocalStore(tmp_path))


def test_a_process_leaves_nothing_but_its_lines() -> None:
    bucket = MemoryStore()
    for _ in range(3):
        with interlock.connect(bucket) as locks:
            locks.lock("a").acquire().release()
    assert [each["path"] for some in bucket.list() for each in some] == ["interlock/=/=a"]


def test_doctor_looks_whether_a_stale_write_is_refused(url: str) -> None:
    with interlock.connect(url) as locks:
        found = {check.name: check.status for check in locks.doctor()}
    assert found["conditional writes"] == found["clock"] == found["round trip"] == "ok"


@pytest.mark.parametrize("wrong", ["s3://", "s3://b?x=1", "gs://user:secret@b", "az://c#x"])
def test_what_a_url_does_not_say_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        interlock.connect(wrong)
    assert "secret" not in str(caught.value)


class Answering(BaseHTTPRequestHandler):
    """Answers as S3 does, but each request for the object of the clock with an error."""

    protocol_version = "HTTP/1.1"
    status, code, methods = 409, "OperationAborted", ("PUT",)

    def log_message(self, *args: object) -> None:
        """Print nothing."""

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fails = ".clock" in self.path and self.command in self.methods
        there = self.command in ("PUT", "DELETE")
        status = self.status if fails else 200 if there else 404
        body = (
            f"<Error><Code>{self.code}</Code></Error>".encode() if status != 200 and self.command != "HEAD" else b""
        )
        self.send_response(status)
        self.send_header("ETag", '"0123456789abcdef"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_PUT = do_HEAD = do_GET = do_DELETE = do_POST = _answer


@pytest.mark.parametrize(
    ("status", "code", "methods", "says"),
    [
        (409, "OperationAborted", ("PUT",), "OperationAborted"),
        (404, "NoSuchKey", ("HEAD",), "404"),
        (403, "RequestTimeTooSkewed", ("PUT",), "Set this machine's clock"),
    ],
)
def test_an_error_for_the_clock_is_a_store_error(status: int, code: str, methods: tuple[str, ...], says: str) -> None:
    handler = type("Handler", (Answering,), {"status": status, "code": code, "methods": methods})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        with interlock.connect(f"s3://key:secret@locks/{uuid4().hex}?endpoint={endpoint}&timeout=2") as locks:
            for call in (partial(locks.lock("a").acquire, timeout=1), partial(locks.claims, "a")):
                with pytest.raises(StoreError, match=says):
                    call()
            assert locks.doctor()[0].status == "fail"
        server.shutdown()
