"""Private servers start, answer, come back on the same port, and are gone with their owner."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.testing.waiting import eventually
from tests.servers import (
    MariaServer,
    NotStarted,
    PgBouncer,
    PostgresServer,
    RedisServer,
    Refused,
    Wire,
    need,
)
from tests.servers.server import Server

KINDS: dict[str, Callable[[], Server]] = {
    "valkey": lambda: RedisServer("valkey"),
    "redis": lambda: RedisServer("redis"),
    "postgres": PostgresServer,
    "pgbouncer": lambda: PgBouncer(("127.0.0.1", 1, "postgres")),
    "mariadb": MariaServer,
}

OWNER = """
import sys, time
from tests.servers import MariaServer, PgBouncer, PostgresServer, RedisServer
kind, paused = sys.argv[1:]
kinds = {"postgres": PostgresServer, "mariadb": MariaServer, "pgbouncer": lambda: PgBouncer(("127.0.0.1", 1, "x"))}
server = kinds.get(kind, lambda: RedisServer(kind))()
if paused == "paused":
    server.pause()
print(server.pid, server.folder, flush=True)
if paused == "ends":
    sys.exit()
time.sleep(1000)
"""


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind of server that this machine has."""
    need(request.param)
    return str(request.param)


def test_a_server_starts_answers_and_comes_back_on_its_port(kind: str) -> None:
    with KINDS[kind]() as server:
        port, folder, first = server.port, server.folder, server.pid
        assert server._answers()
        server.kill()
        assert not server.running
        with pytest.raises(NotStarted):
            _ = server.pid
        server.start()
        assert (server.port, server._answers()) == (port, True)
        assert server.pid != first
        server.stop()
        server.restart()
        assert str(port) in server.url
        last = server.pid
    assert not folder.exists()
    assert not folder.parent.exists()
    assert not alive(last)


def test_start_of_a_running_server_does_nothing(kind: str) -> None:
    with KINDS[kind]() as server:
        pid = server.pid
        server.start()
        assert server.pid == pid


@pytest.mark.parametrize("how", ["runs", "paused"])
def test_nothing_is_left_when_its_owner_is_killed(kind: str, how: str) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, kind, how], stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        pid, folder = owner.stdout.readline().split()
        assert alive(int(pid))
        assert Path(folder).exists()
    finally:
        owner.kill()
        owner.communicate()
    eventually(lambda: not alive(int(pid)))
    eventually(lambda: not Path(folder).parent.exists())
    eventually(lambda: not Path(folder).parent.with_suffix(".gone").exists())


def test_nothing_is_left_when_its_owner_ends_without_closing_it(kind: str) -> None:
    done = subprocess.run([sys.executable, "-c", OWNER, kind, "ends"], stdout=subprocess.PIPE, text=True, check=True)
    pid, folder = done.stdout.split()
    eventually(lambda: not alive(int(pid)))
    eventually(lambda: not Path(folder).parent.exists())


def test_a_forked_child_does_not_end_the_server_of_its_parent() -> None:
    need("redis")
    with RedisServer("redis") as server:
        child = os.fork()
        if child == 0:
            try:
                server._home.close()
            finally:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert server.command("PING") == "PONG"


def test_a_paused_server_answers_nobody_until_it_is_resumed() -> None:
    need("valkey")
    with RedisServer("valkey") as server:
        server.pause()
        with pytest.raises(TimeoutError):
            server.command("PING", timeout=0.05)
        server.resume()
        assert server.command("PING") == "PONG"


@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_data_survive_a_kill_only_if_they_are_to_persist(kind: str) -> None:
    need(kind)
    for persist, found in ((True, "here"), (False, None)):
        with RedisServer(kind, persist=persist) as server:
            server.command("SET", "key", "here")
            server.restart()
            assert server.command("GET", "key") == found


def test_a_server_asks_for_its_password_and_speaks_over_its_socket() -> None:
    need("valkey")
    with RedisServer("valkey", password='odd "words" #1', config={"maxmemory": "50mb"}) as server:
        assert server.command("CONFIG", "GET", "maxmemory") == ["maxmemory", str(50 << 20)]
        with Wire(server.socket) as stranger, pytest.raises(Refused, match="NOAUTH"):
            stranger.ask("PING")
        with Wire(server.socket, 'odd "words" #1') as friend:
            assert friend.ask("PING") == "PONG"


def test_a_server_speaks_tls_with_a_certificate_of_its_own_authority() -> None:
    need("redis")
    need("tls")
    with RedisServer("redis", tls=True) as server:
        assert server.url.startswith("rediss://127.0.0.1:")
        assert server.command("PING") == "PONG"
        assert server.tls is not None
        with pytest.raises(OSError), Wire((server.host, server.port), timeout=2.0) as plain:
            plain.ask("PING")


def test_a_server_that_does_not_start_says_why_and_leaves_nothing() -> None:
    need("valkey")
    with pytest.raises(NotStarted, match="no-such-setting"):
        RedisServer("valkey", config={"no-such-setting": "1"})


def test_a_port_is_kept_for_its_server_while_that_is_down() -> None:
    need("valkey")
    with RedisServer("valkey") as server:
        server.kill()
        with pytest.raises(NotStarted, match="is taken"):
            RedisServer("valkey", port=server.port)
        server.start()


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that has ended and was not waited for does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout
    return state.strip() != "" and not state.startswith("Z")


def test_the_pid_of_a_server_is_that_of_the_server_itself() -> None:
    need("redis")
    with RedisServer("redis") as server:
        assert server.info("server")["process_id"] == str(server.pid)
        os.kill(server.pid, signal.SIGKILL)
        eventually(lambda: not server.running)
        server.start()
        assert server.command("PING") == "PONG"
