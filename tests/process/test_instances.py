"""A process of a stable name that dies and starts again: what the next one takes over, and what it leaves."""

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

import interlock
from interlock.core.claims import MAX_INSTANCE, MAX_LABEL
from interlock.patterns.payload import digest_of, labelled
from interlock.runtime.incarnation import Incarnation, began, this_process
from interlock.stores.files.slots import tail
from interlock.testing.other_process import Remote
from interlock.testing.store_fixture import ContractWorld, StoreFixture
from interlock.testing.waiting import RENEWED, eventually
from tests.process.conftest import Start

NAME = "worker-7"
LONG_TTL = 300
RESTART = 10.0  # seconds on a busy machine for a start and an acquire; far less than the lease
CONNECT = f"locks = interlock.connect(url, instance={NAME!r}, takeover=True)\n"
ACQUIRE = f"grant = locks.lock('book', ttl={LONG_TTL}).acquire(timeout={RESTART}); result = grant and grant.fence"
IN_THREADS = CONNECT + ACQUIRE
IN_TASKS = f"""
import asyncio
loop = asyncio.new_event_loop()
locks = interlock.aconnect(url, instance={NAME!r}, takeover=True)
async def acquire():
    global grant
    grant = await locks.lock('book', ttl={LONG_TTL}).acquire(timeout={RESTART})
    return grant and grant.fence
result = loop.run_until_complete(acquire())
"""
COLOURS = pytest.mark.parametrize("acquire", [IN_THREADS, IN_TASKS], ids=["threads", "tasks"])
FORK = """
import os, signal
def in_child(work):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, repr(work()).encode())
            signal.pause()
        finally:
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader) as answer:
        return child, os.read(reader, 100).decode()
"""
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="/proc shows the start of a process")


@COLOURS
def test_a_killed_process_gets_its_locks_back_after_a_restart(
    place: StoreFixture, world: ContractWorld, remote: Start, acquire: str
) -> None:
    first = remote()
    fence = first.do(acquire)
    first.kill()
    second = remote()
    assert second.do(acquire) > fence
    (holder,) = world.holders()
    assert (holder.instance, holder.pid) == (NAME, second.process.pid)
    second.kill()


def test_two_processes_of_one_name_on_a_host_leave_each_other(remote: Start) -> None:
    first, second = remote(), remote()
    fence = first.do(IN_THREADS)
    second.do(CONNECT + "result = locks.lock('shelf').acquire().fence")
    assert second.do("result = locks.lock('book').acquire(timeout=0)") is None
    assert first.do("result = grant.renew() and grant.fence") == fence


# forks, on one store: what they do is up to the client


@pytest.fixture
def file(tmp_path: Path) -> str:
    """The URL of a store whose locks outlive a process."""
    return f"sqlite:///{tmp_path}/locks.db"


@pytest.fixture
def started(file: str) -> Iterator[Callable[..., Remote]]:
    with ExitStack() as ends:
        yield lambda *before: ends.enter_context(closing(Remote(file, before)))


@LINUX
@pytest.mark.parametrize("warm_up", ["", "locks.lock('x').acquire().release()"], ids=["", "after a lock of its own"])
def test_workers_of_a_server_leave_the_claims_of_living_siblings(
    file: str, started: Callable[..., Remote], warm_up: str
) -> None:
    server = started()
    server.do(CONNECT + FORK + warm_up)
    work = "in_child(lambda: locks.lock({!r}, ttl=300).acquire(timeout=0) is not None)"
    children = [server.do(f"result = {work.format(name)}") for name in "abab"]
    assert [told for _, told in children] == ["True", "True", "False", "False"]
    with interlock.connect(file) as eye:
        assert {(view.instance, view.pid) for view in eye.claims()} == {(NAME, pid) for pid, _ in children[:2]}
        # One worker is killed; the next one takes over its claim, and no other.
        os.kill(children[0][0], signal.SIGKILL)
        next_one, told = server.do(f"result = {work.format('a')}")
        assert told == "True"
        assert {view.name: view.pid for view in eye.claims()} == {"a": next_one, "b": children[1][0]}
        for child, _ in [*children[1:], (next_one, "")]:
            os.kill(child, signal.SIGKILL)
        # The server itself is killed with all workers.
        server.kill()
        assert started().do(CONNECT + "result = locks.lock('b').acquire(timeout=0) is not None")


@LINUX
def test_a_fork_that_outlives_its_server_keeps_its_lock(started: Callable[..., Remote]) -> None:
    server = started()
    child, told = server.do(CONNECT + FORK + "result = in_child(lambda: locks.lock('a').acquire().fence > 0)")
    server.kill()
    try:
        assert told == "True"
        assert started().do(CONNECT + "result = locks.lock('a').acquire(timeout=0)") is None
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_pickle_keeps_the_instance_and_takes_nothing_over(file: str) -> None:
    with interlock.connect(file, instance=NAME, takeover=True) as locks:
        there = pickle.loads(pickle.dumps(locks.lock("book")))
        with there:
            assert [view.instance for view in locks.claims()] == [NAME]
    assert b"takeover" not in pickle.dumps(locks.lock("book"))


# hosts


CONTAINER = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
container = pytest.mark.skipif(
    not shutil.which("unshare") or subprocess.run([*CONTAINER, "true"], capture_output=True).returncode != 0,
    reason="only root can make a pid namespace",
)


@container
def test_a_living_one_on_another_host_learns_of_it_at_its_renewal(started: Callable[..., Remote]) -> None:
    older = started(*CONTAINER)
    older.do(CONNECT + f"grant = locks.lock('book', ttl={RENEWED}).acquire()")
    newer = started(*CONTAINER)
    assert newer.do(IN_THREADS)
    eventually(lambda: older.do("result = grant.lost"))
    # The older one, which connects once more, leaves the claims of the newer one.
    assert older.do(CONNECT + "result = locks.lock('book').acquire(timeout=0)") is None
    assert newer.do("result = grant.renew()")


@container
def test_a_container_that_starts_again_is_pid_1_again(started: Callable[..., Remote]) -> None:
    first = started(*CONTAINER)
    first.do(IN_THREADS)
    assert first.do("import os; result = os.getpid()") == 1
    first.kill()
    assert started(*CONTAINER).do(IN_THREADS)


@container
def test_a_pickle_on_another_host_outlives_its_sender(file: str, started: Callable[..., Remote]) -> None:
    sent = started().do(CONNECT + "import pickle; result = pickle.dumps(locks.lock('book', ttl=300)).hex()")
    there = started(*CONTAINER)
    there.do(f"import pickle; grant = pickle.loads(bytes.fromhex({sent!r})).acquire()")
    with interlock.connect(file) as eye:
        assert [view.instance for view in eye.claims()] == [NAME]
    # The sender starts again, so it is younger than the process that got the pickle.
    assert started().do(CONNECT + "result = locks.lock('book').acquire(timeout=0)") is None
    assert there.do("result = grant.renew()")


# known to be dead


def mine() -> Incarnation:
    return this_process(NAME, began())


def test_a_process_is_no_earlier_one_of_itself() -> None:
    assert not mine().is_over(mine())
    assert not mine()._replace(since=0).is_over(mine())


@LINUX
def test_a_process_that_has_the_pid_of_a_dead_one_is_another_one() -> None:
    assert mine()._replace(start=1).is_over(mine())
    child = subprocess.Popen(["sleep", "60"])
    try:
        assert mine()._replace(pid=child.pid, start=1).is_over(mine())
        assert not mine()._replace(pid=child.pid, start=0).is_over(mine())  # its start is unknown
    finally:
        child.kill()
        child.wait()
    assert mine()._replace(pid=child.pid, start=0).is_over(mine())


@LINUX
def test_a_process_that_its_parent_has_not_awaited_is_dead(file: str, started: Callable[..., Remote]) -> None:
    server = started()
    child, _ = server.do(CONNECT + FORK + "result = in_child(lambda: locks.lock('a', ttl=300).acquire().fence)")
    os.kill(child, signal.SIGKILL)
    eventually(lambda: Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
    assert started().do(CONNECT + "result = locks.lock('a').acquire(timeout=0) is not None")


@LINUX
def test_a_process_whose_main_thread_has_ended_lives() -> None:
    threads = "import ctypes, sys, threading; threading.Thread(target=sys.stdin.read).start()"
    command = [sys.executable, "-c", f"{threads}; ctypes.CDLL(None).pthread_exit(None)"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        stat = Path(f"/proc/{process.pid}/stat")
        eventually(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z")
        start = int(stat.read_text().rpartition(")")[2].split()[19])
        assert not mine()._replace(pid=process.pid, start=start).is_over(mine())
        process.kill()
        eventually(lambda: mine()._replace(pid=process.pid, start=start).is_over(mine()))


@pytest.mark.parametrize("label", ["", "ä" * MAX_LABEL])
def test_a_digest_and_an_instance_fit_into_a_file_beside_the_longest_host(label: str) -> None:
    digest, mark = digest_of("\0pay", b"a"), Incarnation("!" * MAX_INSTANCE, "0" * 8, 4_194_304, 10**10, 10**12).mark
    text = tail(1, 10**6, 10**9, True, "a" * 20, f"{'h' * 64} 4194304", mark + "t" * 60, labelled(digest, label))
    assert f'label="payload:{digest}' in text.decode()
    assert json.dumps(mark, ensure_ascii=False)[1:-1] in text.decode()
