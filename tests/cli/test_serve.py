"""`interlock serve` with real requests: its responses, its refusals, and its end."""

import json
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.cli import main
from interlock.testing.store_fixture import StoreFixture
from interlock.testing.waiting import RENEWED, eventually, moment, since
from tests.support.serve_process import TOKEN, Served, served
from tests.support.stores import ROWS

EVIL = "<script>alert(1)</script>\" onload='alert(2)'"
NAMED = {row.name: row for row in ROWS}


@pytest.fixture(params=["file", "valkey"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> StoreFixture:
    """An empty place for locks, on stores of different kinds."""
    return NAMED[request.param].place(tmp_path)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "locks").as_uri()


@pytest.fixture
def locks(url: str) -> Iterator[interlock.Locks]:
    with interlock.connect(url) as made:
        yield made


@pytest.fixture
def page(url: str, tmp_path: Path) -> Iterator[Served]:
    """The page of that store, whose token is known."""
    with served(url, tmp_path) as made:
        yield made


def held(locks: interlock.Locks, name: str = "book", **how: Any) -> interlock.Grant:
    grant = locks.lock(name, **how).acquire()
    assert grant is not None
    return grant


def test_holders_and_waiters_are_told_and_one_is_evicted(place: StoreFixture, tmp_path: Path) -> None:
    assert place.url is not None
    with interlock.connect(place.url) as locks, served(place.url, tmp_path) as page:
        assert page.look()["locks"] == []
        grant = held(locks, ttl=RENEWED, label=EVIL)
        seen = eventually(lambda: next(filter(itemgetter("locks"), [page.look()]), None))
        assert seen["store"] in page.said
        assert (seen["namespace"], seen["token"], seen["hidden"]) == ("", True, 0)
        (line,) = seen["locks"]
        assert (line["name"], line["waiters"]) == ("book", [])
        assert (line["holders"][0]["id"], line["holders"][0]["label"]) == (grant.id, EVIL)
        assert page.evict("book", grant.id) == (200, {"evicted": 1})
        assert page.look()["locks"] == []  # at once: not with the next look
        eventually(lambda: grant.lost)
        assert page.evict("book", grant.id) == (200, {"evicted": 0})
        assert page.end(signal.SIGTERM)[1].startswith(
            f"interlock: Evicted claim {grant.id} of 'book' at the request of"
        )


def test_without_a_token_nobody_evicts(url: str, locks: interlock.Locks, tmp_path: Path) -> None:
    grant = held(locks)
    with served(url, tmp_path, token=None) as page:
        assert "(read-only)" in page.said
        for given in ("Bearer ", "Bearer None", f"Bearer {TOKEN}"):
            assert page.evict("book", grant.id, Authorization=given)[0] == 403
        assert page.look()["token"] is False
    assert [view.id for view in locks.claims()] == [grant.id]


def test_malformed_requests_are_refused_and_the_page_works_on(page: Served) -> None:
    ours = {"Content_Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    for body in ("", "[]", "{", '{"name": "a"}', '{"name": 1, "id": 2}', "[" * 9000, b"\xff"):
        assert page.ask("/evict", "POST", body, **ours)[0] == 400
    assert page.evict("", "1")[0] == 400
    assert page.ask("/evict")[0] == 404  # there is no such file
    assert page.ask("/../app.py")[0] == 404
    assert page.ask(f"/?token={TOKEN}")[0] == 200


def test_only_its_own_names_are_answered(url: str, tmp_path: Path) -> None:
    with served(url, tmp_path, "--allow-host", "Locks.Example") as page:
        for host in ("127.0.0.1", "localhost:1", "[::1]", "10.0.0.7:80", "locks.example", "LOCKS.example:8765"):
            assert page.ask("/", Host=host)[0] == 200
        for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "[::1", "a@b"):
            status, _, text = page.ask("/look", Host=host)
            assert (status, "--allow-host" in text) == (400, True)
        body = json.dumps({"name": "book", "id": "1"})
        assert page.ask("/evict", "POST", body, Host="evil.example", Origin="http://evil.example")[0] == 400


@pytest.mark.parametrize("path", ["/", "/page.js", "/page.css", "/nothing"])
def test_browsers_are_told_to_run_nothing_else(page: Served, path: str) -> None:
    _, headers, text = page.ask(path)
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in headers
    assert TOKEN not in text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_at_once_though_browsers_watch(page: Served, number: signal.Signals) -> None:
    with closing(page.connect()) as watching, socket.create_connection(("127.0.0.1", page.port)) as silent:
        watching.request("GET", "/look")
        assert watching.getresponse().read()
        silent.sendall(b"GET /look HTTP/1.1\r\nHost: localhost\r\n\r\n")  # and reads nothing
        before = moment()
        assert page.end(number) == (0, "")
        assert since(before) < 5


def test_a_store_that_goes_away_is_told_and_seen_again(tmp_path: Path) -> None:
    from tests.servers import RedisServer, need

    need("valkey")
    with RedisServer("valkey") as server:
        server.start()
        with served(server.url, tmp_path) as page:
            assert page.look()["locks"] == []
            server.stop()
            assert eventually(lambda: page.look().get("error"))
            server.start()
            eventually(lambda: page.look().get("locks") == [])


def test_a_token_from_a_file_is_not_in_the_command(url: str, locks: interlock.Locks, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a-token-from-a-file\n")
    file.chmod(0o600)
    grant = held(locks)
    with served(url, tmp_path, "--token-file", str(file), token=None) as page:
        assert "token can evict" in page.said
        assert page.evict("book", grant.id)[0] == 401
        assert page.evict("book", grant.id, Authorization="Bearer a-token-from-a-file") == (200, {"evicted": 1})


def test_a_port_that_is_taken_is_69_and_a_store_that_is_away_75(
    url: str, page: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--store", url, "--port", str(page.port)]) == 69
    assert "--port 0" in capsys.readouterr().err
    assert main(["serve", "--store", "redis://127.0.0.1:1", "--port", "0"]) == 75


@pytest.mark.parametrize("origin", ["http://[", "null", "http://evil.example", "http://[::1", "x", "http://"])
def test_an_origin_that_is_not_the_page_is_refused(page: Served, origin: str) -> None:
    status, answer = page.evict("book", "1", Origin=origin)
    assert (status, "another site" in answer["error"]) == (403, True)


HALVES = ["", "GET /look HTTP/1.1\r\nHost: ", "POST /evict HTTP/1.1\r\nHost: {}\r\nContent-Length: 9\r\n{}\r\n{{"]
OURS = f"Content-Type: application/json\r\nAuthorization: Bearer {TOKEN}\r\n"


@pytest.mark.parametrize("half", HALVES)
def test_clients_that_send_half_a_request_keep_nobody_out(page: Served, half: str) -> None:
    head = half.format(page.host, OURS).encode()
    with ExitStack() as stack:
        for _ in range(250):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", page.port), timeout=30))
            client.send(head)
        assert page.look()["locks"] == []
        assert page.ask("/")[0] == 200


def test_a_viewer_stays_connected_while_others_come(page: Served) -> None:
    with closing(page.connect()) as viewer, ExitStack() as stack:
        for _ in range(150):
            stack.enter_context(socket.create_connection(("127.0.0.1", page.port), timeout=30))
            viewer.request("GET", "/look", headers={"Host": page.host})
            answer = viewer.getresponse()
            assert (answer.status, bool(answer.read())) == (200, True)
