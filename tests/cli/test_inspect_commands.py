"""`interlock ls`, `show`, `watch`, `evict`, `doctor`: their output for people and for programs."""

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from datetime import datetime

import pytest

import interlock
from interlock.cli import main, output
from interlock.testing.waiting import SET_BACK, eventually
from tests.support.cli_processes import CliRunner
from tests.support.terminal import terminal

CLAIM_KEYS = [
    "id", "state", "kind", "units", "capacity", "fence", "host", "pid", "instance", "thread", "label", "since",
    "waiting_since", "held_since", "expires_in",
]  # fmt: skip


@pytest.fixture
def space(request: pytest.FixtureRequest) -> str:
    """The URL of a new store in this process's memory."""
    return f"memory://{abs(hash(request.node.nodeid))}"


@pytest.fixture
def locks(space: str) -> Iterator[interlock.Locks]:
    with interlock.connect(space) as made:
        yield made


class Seen:
    """Runs the command in this process."""

    def __init__(self, space: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._space = space
        self._capsys = capsys

    def __call__(self, *words: str) -> tuple[int, str, str]:
        status = main([words[0], "--store", self._space, *words[1:]])
        return status, *self._capsys.readouterr()

    def json(self, *words: str) -> object:
        status, output, errors = self(*words, "--json")
        assert (status, errors) == (0, "")
        return json.loads(output)


@pytest.fixture
def seen(space: str, capsys: pytest.CaptureFixture[str]) -> Seen:
    return Seen(space, capsys)


def rows(table: str) -> list[list[str]]:
    """The cells of a table, which are separated by at least two spaces."""
    return [re.split(r"\s{2,}", line.strip()) for line in table.splitlines() if line.strip() and "──" not in line]


# Nothing to see


def test_nothing_is_empty_in_json(seen: Seen, space: str) -> None:
    assert seen.json("ls") == []
    assert seen.json("show", "book") == {"name": "book", "holders": [], "waiters": [], "store": space}
    status, printed, _ = seen("evict", "book", "--json")
    assert status == 1
    assert json.loads(printed) == {"name": "book", "id": None, "instance": None, "evicted": 0}


# ls and show


def test_ls_shows_a_row_for_each_lock(seen: Seen, space: str, locks: interlock.Locks) -> None:
    with locks.lock("book:2", label="nightly"), locks.rwlock("book:1").read(), locks.rwlock("book:1").read():
        _, printed, _ = seen("ls")
    me = f"{os.getpid()}@"
    store, header, first, second = rows(printed)
    assert store == [f"Store {space}"]
    assert header == ["Lock", "Kind", "Holder", "Label", "Since", "Waiters"]
    assert first[:2] == ["book:1", "reader"]
    assert first[2].startswith(me)
    assert first[2].endswith(" and 1 more")
    assert first[3:] == ["just now", "0"]
    assert second[:2] == ["book:2", "exclusive"]
    assert second[2].startswith(me)
    assert second[3:] == ["nightly", "just now", "0"]


def test_ls_shows_the_longest_wait(seen: Seen, locks: interlock.Locks) -> None:
    with locks.lock("book"):
        (holder,) = locks.claims("book")
    waiters = [holder._replace(state="pending", since=time.time() - seconds) for seconds in (70, 250, 10)]
    table = output.locks_table(output.console(), [output.line_of("book", [holder, *waiters])])
    assert [str(column.header) for column in table.columns][-2:] == ["Waiters", "Longest wait"]
    assert [str(next(iter(column.cells))) for column in table.columns][-2:] == ["3", "4 min"]


def test_ls_shows_how_much_of_a_semaphore_is_in_use(seen: Seen, locks: interlock.Locks) -> None:
    with locks.semaphore("pool", 5, units=2), locks.semaphore("pool", 5):
        assert rows(seen("ls")[1])[2][:2] == ["pool", "semaphore 3 of 5"]


def test_a_holder_is_shown_with_the_time_of_its_hold(locks: interlock.Locks) -> None:
    with locks.lock("book"):
        (holder,) = locks.claims("book")
    now = time.time()
    holder = holder._replace(since=now - 8000, held_since=now - 130)
    table = output.locks_table(output.console(), [output.line_of("book", [holder])])
    assert str(next(iter(table.columns[3].cells))) == ""
    assert str(next(iter(table.columns[4].cells))) == "2 min ago"


def test_ls_counts_no_record_of_once_as_a_holder(seen: Seen, locks: interlock.Locks) -> None:
    locks.once("book", keep=60).run(lambda: None)
    with locks.lock("book"):
        _, printed, _ = seen("ls")
    book, kind, holder, *_ = rows(printed)[2]
    assert (book, kind) == ("book", "exclusive, once")
    assert "more" not in holder


def test_ls_shows_waiters_beside_a_record(seen: Seen, locks: interlock.Locks) -> None:
    locks.once("book", keep=60).run(lambda: None)
    (record,) = locks.claims("book")
    waiter = record._replace(state="pending", id="1", units=1, capacity=1, since=1.0, label="waits")
    table = output.locks_table(output.console(), [output.line_of("book", [record, waiter])])
    holder, label, since, waiters = [str(next(iter(column.cells))) for column in table.columns][2:6]
    assert (holder, label, since[:8], waiters) == ("", "", "kept for", "1")


def test_a_record_of_once_is_shown_as_a_record(seen: Seen, locks: interlock.Locks) -> None:
    locks.once("import", keep=7200).run(lambda: None)
    (view,) = locks.claims("import")
    assert (view.state, view.since, view.waiting_since, view.held_since) == ("done", None, None, None)
    for words in (["ls"], ["show", "import"]):
        _, printed, _ = seen(*words)
        assert "kept for 1 h" in printed
        assert not re.search(r"waiter|0@|\bago\b|since |thread", printed.replace("Waiters", "").replace("Since", ""))
    (lock,) = seen.json("ls")
    assert seen.json("show", "import")["holders"][0]["state"] == "done"
    (record,) = lock["holders"]
    facts = [record[key] for key in ("state", "kind", "since", "waiting_since", "held_since", "pid", "fence")]
    assert facts == ["done", "once", None, None, None, None, None]


def test_show_shows_the_line_in_its_order(run_cli: CliRunner) -> None:
    run_cli.hold("book", "--label", "first")
    for label in ("second", "third"):
        run_cli.start("run", "-s", "--label", label, "book", "--", "true")
        run_cli.wait_for({"second": 1, "third": 2}[label], "pending")
    _, printed, _ = run_cli.run("show", "book")
    store, *line = rows(printed)
    assert store == [f"Store {run_cli.url}"]
    assert [(row[0], row[1], row[3]) for row in line if row[0] in ("holder", "waiter")] == [
        ("holder", "exclusive", "first"),
        ("waiter", "reader", "second"),
        ("waiter", "reader", "third"),
    ]
    told = json.loads(run_cli.run("show", "book", "--json")[1])
    assert [view["label"] for view in told["holders"]] == ["first"]
    assert [view["label"] for view in told["waiters"]] == ["second", "third"]


def test_json_has_the_documented_keys(seen: Seen, space: str, locks: interlock.Locks) -> None:
    with locks.semaphore("pool", 5, units=2, label="nightly", ttl=60) as grant:
        (lock,) = seen.json("ls")
        assert seen.json("show", "pool") == {
            **lock,
            "store": space,
            "holders": [{**lock["holders"][0], "expires_in": pytest.approx(60, abs=30)}],
        }
    assert list(lock) == ["name", "holders", "waiters"]
    (claim,) = lock["holders"]
    assert list(claim) == CLAIM_KEYS
    assert claim["id"] == grant.id
    assert (claim["state"], claim["kind"]) == ("using", "semaphore 2/5")
    assert (claim["units"], claim["capacity"], claim["fence"]) == (2, 5, grant.fence)
    assert (claim["pid"], claim["label"]) == (os.getpid(), "nightly")
    assert claim["since"].endswith("Z")
    assert abs(datetime.fromisoformat(claim["since"]).timestamp() - time.time()) < 60
    assert 0 < claim["expires_in"] <= 60 + SET_BACK


def test_claims_in_other_namespaces_are_told(seen: Seen, space: str, locks: interlock.Locks) -> None:
    told = "Other namespaces have claims (use --namespace): 'shop', 'x\\x1b'\n"
    with (
        interlock.connect(space, namespace="shop") as shop, shop.lock("book"),
        interlock.connect(space, namespace="x\x1b") as odd, odd.lock("book"),
    ):  # fmt: skip
        assert seen("ls")[1] == f"No lock is held in {space}.\n{told}"
        assert seen("show", "book")[1] == f"'book' has no holder and no waiter in {space}.\n{told}"
        with locks.lock("mine"):
            for words in (["ls"], ["show", "mine"]):
                assert seen(*words)[1].endswith(f"\n{told}")
            printed = seen("ls", "--namespace", "shop")[1]
            assert printed.startswith(f"Store {space}, namespace 'shop'\n")
            assert "--namespace): '', 'x" in printed


@pytest.mark.parametrize("width", [40, 60, 80])
def test_tables_fit_the_terminal_and_keep_names_whole(
    seen: Seen, locks: interlock.Locks, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.console import Console

    plain = {"width": width, "force_terminal": True, "color_system": None}
    monkeypatch.setattr(output, "console", lambda stderr=False: Console(**plain))
    name = "report:weekly-07"
    with locks.semaphore(name, 3, label="a label of some length"), locks.lock("b", label="x"):
        listed, shown = (seen(*words)[1] for words in (["ls"], ["show", name]))
        out = output.console()
        with out.capture() as captured:
            out.print(output.claims_table(out, output.lines_of(locks.claims())))
    watched = captured.get()
    for printed in (listed, shown, watched):
        assert max(len(line) for line in printed.splitlines() if not line.startswith("Store ")) <= width, printed
    assert all(f" {name} " in printed and "Label" not in printed for printed in (listed, watched))
    assert "a label of some length" in " ".join(shown.split())
    assert ("Kind" in listed, "Since" in listed, "Kind" in watched) == {
        40: (False, False, False),
        60: (True, False, True),
        80: (True, True, True),
    }[width]


def test_names_and_labels_are_escaped_for_the_terminal(seen: Seen, locks: interlock.Locks) -> None:
    with locks.lock("[red]\x1b[2J", label="a\nb"):
        _, printed, _ = seen("ls")
        assert "\x1b" not in printed
        assert rows(printed)[2][0] == r"[red]\x1b[2J"
        assert r"a\nb" in printed
        assert "\x1b" not in seen("show", "[red]\x1b[2J")[1]
    assert "\x1b" not in seen("show", "\x1b[2J")[1]
    assert "\x1b" not in seen("evict", "\x1b[2J")[2]


# evict


def test_evict_removes_all_claims_or_one(seen: Seen, locks: interlock.Locks) -> None:
    pool = locks.semaphore("pool", 5)
    grants = [pool.acquire() for _ in range(3)]
    assert seen("evict", "pool", grants[1].id) == (0, "Removed 1 claim of 'pool'.\n", "")
    assert seen("evict", "pool", grants[1].id)[0] == 1
    assert grants[1].id in seen("evict", "pool", grants[1].id)[2]
    assert seen.json("evict", "pool", grants[0].id) == {
        "name": "pool", "id": grants[0].id, "instance": None, "evicted": 1,
    }  # fmt: skip
    assert seen("evict", "--yes", "pool")[1] == "Removed 1 claim of 'pool'.\n"
    assert locks.claims() == []


def test_evict_removes_the_claims_of_one_instance(seen: Seen, space: str, locks: interlock.Locks) -> None:
    with interlock.connect(space, instance="worker-7") as named:
        grants = [named.lock(name).acquire() for name in ("book", "shelf", "hall")]
        other = locks.lock("desk").acquire()
        assert "(worker-7)" in seen("ls")[1]
        assert "(worker-7)" in seen("show", "book")[1]
        assert seen("evict", "book", "--instance", "worker-7") == (0, "Removed 1 claim of 'book'.\n", "")
        assert seen("evict", "desk", "--instance", "worker-7")[0] == 1
        assert seen.json("evict", "--instance", "worker-7") == {
            "name": None, "id": None, "instance": "worker-7", "evicted": 2,
        }  # fmt: skip
        assert seen("evict", "--instance", "worker-7")[2] == "interlock: No claim of 'worker-7' was removed.\n"
        assert [view.id for view in locks.claims()] == [other.id]
        eventually(lambda: not any(grant.held for grant in grants))


@pytest.mark.parametrize(
    ("answer", "ended", "left"),
    [("y\n", "ended 0", 0), ("n\n", "ended 1", 1), ("\n", "ended 1", 1), ("\x03", "ended 130", 1)],
)
def test_evict_asks_on_a_terminal(run_cli: CliRunner, answer: str, ended: str, left: int) -> None:
    run_cli.hold("book", "--label", "nightly")
    with terminal(run_cli, "evict", "book") as person:
        person.see(r"holder[^\n]*nightly")
        person.see(r"Remove 1 claim of 'book'\? \[y/N\]: ")
        time.sleep(0.5)  # nothing tells when it has begun to read: Python misses a Ctrl-C just before that
        person.press(answer)
        person.see(ended)
    assert run_cli.count("using") == left


# watch


def test_watch_prints_one_json_line_per_look_and_exits_0(run_cli: CliRunner) -> None:
    watch = run_cli.start("watch", "--json", "--interval", "0.05")
    first = json.loads(watch.read_line())
    assert first["store"] == run_cli.url
    assert (list(first), first["locks"]) == (["time", "store", "locks"], [])
    run_cli.hold()
    look = eventually(lambda: json.loads(watch.read_line())["locks"])
    assert [lock["name"] for lock in look] == ["book"]
    assert list(look[0]["holders"][0]) == CLAIM_KEYS
    watch.send_signal(signal.SIGINT)
    status, _, errors = watch.ended()
    assert (status, errors) == (0, "")


def test_watch_on_a_terminal_keeps_a_table_until_ctrl_c(run_cli: CliRunner) -> None:
    with terminal(run_cli, "watch", "--interval", "0.05") as person:
        person.see("No lock is held in")
        holder = run_cli.hold("book", "--label", "nightly")
        person.see(r"book[^\n]*holder[^\n]*nightly")
        holder.ended()
        person.see("No lock is held in")
        person.press("\x03")
        assert "\x1b[?25h" in person.see(r"(?s).*ended 0")[0]  # the cursor is shown again


def test_watch_draws_what_is_left_of_a_lease_and_colours_long_waits(locks: interlock.Locks) -> None:
    with locks.lock("book"):
        (holder,) = locks.claims("book")
    now = time.time()
    waiters = [holder._replace(id=str(age), state="pending", since=now - age) for age in (5, 70, 700)]
    line = output.line_of("book", [holder._replace(expires_in=12.5), *waiters])
    table = output.claims_table(output.console(), [line], {holder.id: 30.0})
    assert [str(row.style) for row in table.rows] == ["bold", "", "yellow", "red"]
    shown = [str(cell) for cell in table.columns[-1].cells]
    assert re.fullmatch("(█{5}░{5}|#{5}-{5}) in 12 s", shown[0])
    assert not re.search("[█#]", "".join(shown[1:]))


def test_a_reader_that_goes_away_ends_it_quietly(run_cli: CliRunner) -> None:
    watch = run_cli.start_unread("watch", "--json", "--interval", "0.05")
    assert watch.wait(timeout=30) != 0
    assert watch.ended()[2] == ""


# doctor


def test_doctor_finds_a_good_store_good(run_cli: CliRunner) -> None:
    status, printed, errors = run_cli.run("doctor")
    assert (status, errors) == (0, "")
    assert printed.startswith(f"Store {run_cli.url}\n")
    assert re.search(r"^ round trip +ok +", printed, re.MULTILINE)
    told = json.loads(run_cli.run("doctor", "--json")[1])
    assert list(told) == ["store", "status", "checks"]
    assert (told["store"], told["status"]) == (run_cli.url, "ok")
    assert all(list(check) == ["name", "status", "detail"] for check in told["checks"])


def test_doctor_warns_with_status_0(seen: Seen) -> None:
    status, printed, _ = seen("doctor")
    assert status == 0
    assert re.search(r"^ reach +warn +memory:// exists in this process only", printed, re.MULTILINE)
    assert seen.json("doctor")["status"] == "warn"


def test_doctor_is_70_if_a_check_fails(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = [interlock.Check("clock", "fail", "it stands still"), interlock.Check("reach", "ok", "far")]
    monkeypatch.setattr(interlock.Locks, "doctor", lambda self: checks)
    status, printed, _ = seen("doctor")
    assert status == 70
    assert rows(printed)[2] == ["clock", "fail", "it stands still"]
    status, printed, _ = seen("doctor", "--json")
    assert (status, json.loads(printed)["status"]) == (70, "fail")


@pytest.mark.parametrize("scheme", ["redis", "postgresql", "postgresql+advisory"])
def test_doctor_is_75_if_the_server_is_away(scheme: str, capsys: pytest.CaptureFixture[str]) -> None:
    away = ["--store", f"{scheme}://127.0.0.1:1/0"]
    assert main(["doctor", *away]) == 75
    printed, errors = capsys.readouterr()
    assert (printed, errors.count("\n")) == ("", 1)
    assert errors.startswith("interlock: The store cannot be used: ")
    assert main(["doctor", "--json", *away]) == 75


# Errors


@pytest.mark.parametrize("words", [["ls"], ["show", "x"], ["watch"], ["evict", "x"], ["doctor"]])
def test_a_store_that_can_not_be_used_is_75_with_one_line(
    run_cli: CliRunner, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (run_cli.folder / "file").write_text("")
    assert main([*words, "--store", f"{run_cli.folder.as_uri()}/file/locks"]) == 75
    printed, errors = capsys.readouterr()
    assert (printed, errors.count("\n")) == ("", 1)


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(re.search(rf"^  {name} +[A-Z]", printed, re.MULTILINE) for name in
               ("run", "ls", "show", "watch", "evict", "doctor"))  # fmt: skip
    for words in (["ls", "--help"], ["run", "--help"], ["run", "-h"]):
        assert main(words) == 0
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.endswith(f"interlock {interlock.__version__}\n")
