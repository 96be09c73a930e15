"""`interlock run`: exclusion, and the environment of the command."""

import re
import signal
import subprocess
import sys
import time

import pytest

from tests.support.cli_processes import COMMAND, CliRunner


def test_runs_never_overlap(run_cli: CliRunner) -> None:
    (run_cli.folder / "counter").write_text("0\n")
    add = "for i in 1 2 3 4 5; do n=$(cat counter); : > using && echo $((n + 1)) > counter; done"
    runs = [run_cli.start("run", "book", "--", "sh", "-c", add) for _ in range(8)]
    assert [run.ended() for run in runs] == [(0, "", "")] * 8
    assert (run_cli.folder / "counter").read_text() == "40\n"


def test_a_short_command_keeps_others_out_as_long_as_it_is_told(run_cli: CliRunner) -> None:
    for seconds in (1.5, 6.0, 24.0, 96.0):  # until another command can begin and end on this machine in that time
        started = time.monotonic()
        words = ("run", "-n", "--at-least", f"{seconds}", "book", "--", "sh", "-c", "echo in; exit 3")
        first = run_cli.start_and_read("in", *words)
        other = run_cli.run("run", "-n", "book", "--", "true")[0]
        in_time = time.monotonic() - started < seconds
        assert first.ended() == (3, "", "")
        assert time.monotonic() - started >= seconds
        if in_time:
            assert other == 1
            break
    else:
        pytest.fail("this machine needs minutes to begin a command")
    assert run_cli.run("run", "-n", "--at-least", "0.01", "book", "--", "true")[0] == 0


@pytest.mark.parametrize("when", ["after the command", "during it"])
def test_a_signal_ends_what_at_least_asks_for(run_cli: CliRunner, when: str) -> None:
    program = "echo in" if when == "after the command" else "echo in; exec sleep 60"
    run = run_cli.start_and_read("in", "run", "-v", "--at-least", "60", "book", "--", "sh", "-c", program)
    if when == "after the command":
        while "--at-least" not in run.read_error_line():
            pass
    run.send_signal(signal.SIGTERM)
    assert run.wait(timeout=30) == 128 + signal.SIGTERM
    assert run_cli.run("run", "-n", "book", "--", "true")[0] == 0


def test_shared_runs_share_and_keep_exclusive_ones_out(run_cli: CliRunner) -> None:
    readers = [run_cli.hold("book", "-s"), run_cli.hold("book", "--shared")]
    assert run_cli.run("run", "-n", "book", "--", "true")[0] == 1
    assert run_cli.run("run", "-xn", "book", "--", "true")[0] == 1
    assert run_cli.locks.rwlock("book").write().acquire(timeout=0) is None
    for reader in readers:
        assert reader.ended() == (0, "out\n", "")
    writer = run_cli.hold("book", "-x")
    assert run_cli.run("run", "-s", "-n", "book", "--", "true")[0] == 1
    writer.ended()


def test_permits_admit_so_many(run_cli: CliRunner) -> None:
    two = ["--permits", "2"]
    holders = [run_cli.hold("pool", *two), run_cli.hold("pool", *two)]
    assert run_cli.run("run", *two, "-n", "pool", "--", "true")[0] == 1
    holders.pop().ended()
    assert run_cli.run("run", *two, "--units", "2", "-n", "pool", "--", "true")[0] == 1
    assert run_cli.run("run", *two, "-n", "pool", "--", "true")[0] == 0
    holders.pop().ended()
    assert run_cli.run("run", *two, "--units", "2", "-n", "pool", "--", "true")[0] == 0


@pytest.mark.parametrize("kind", [["-x"], ["-s"], ["--permits", "1"], ["--one-of", "book=a"]])
def test_a_run_does_not_wait_behind_many_others(run_cli: CliRunner, kind: list[str]) -> None:
    name = [] if "--one-of" in kind else ["book"]
    with run_cli.locks.one_of("book", ["a"]) if not name else run_cli.locks.lock("book"):
        words = [
            "run",
            "--max-waiters",
            "1",
            "-E",
            "9",
            *(kind if kind != ["-x"] else []),
            *name,
            "--",
            "echo",
            "ran",
        ]
        waiting = run_cli.start(*words)
        run_cli.wait_for(1, "pending")
        assert run_cli.run(*words) == (9, "", "")
        assert "1 or more others are already waiting" in run_cli.run("run", "-v", *words[1:])[2]
    assert waiting.ended() == (0, "ran\n", "")


def test_names_and_namespaces_and_stores_are_separate(run_cli: CliRunner) -> None:
    run_cli.hold()
    elsewhere = (run_cli.folder / "elsewhere").as_uri()
    assert run_cli.run("run", "-n", "Book", "--", "true")[0] == 0
    assert run_cli.run("run", "-n", "--namespace", "shop", "book", "--", "true")[0] == 0
    assert run_cli.run("run", "-n", "--store", elsewhere, "book", "--", "true")[0] == 0
    assert run_cli.run("run", "-n", "--namespace", "", "book", "--", "true")[0] == 1


@pytest.mark.parametrize("name", ["book:1", "../../etc/passwd", "two\nlines", "Bücher 📚", "-n", "x" * 1000, " "])
def test_any_name_can_be_locked_and_the_command_is_told_which(run_cli: CliRunner, name: str) -> None:
    words = ["run", "--", name] if name.startswith("-") else ["run", name, "--"]
    with run_cli.locks.lock(name):
        assert run_cli.run(*words[:1], "-n", *words[1:], "true")[0] == 1
    assert run_cli.run(*words, "sh", "-c", 'printf %s "$INTERLOCK_NAME"') == (0, name, "")


def test_the_command_sees_a_fence_that_increases(run_cli: CliRunner) -> None:
    fences = [int(run_cli.run("run", "book", "--", "sh", "-c", "echo $INTERLOCK_FENCE")[1]) for _ in range(3)]
    assert fences == sorted(set(fences))
    with run_cli.locks.lock("book") as grant:
        assert grant.fence > fences[-1]


def test_others_see_the_label(run_cli: CliRunner) -> None:
    run_cli.hold("one", "--label", "nightly backup")
    run_cli.hold("two")
    labels = {view.name: view.label for view in run_cli.locks.claims()}
    assert labels == {"one": "nightly backup", "two": "sh"}


# The command line


@pytest.mark.parametrize(
    "words",
    [
        ["book", "--", "echo", "-n", "--", "-v"],
        ["book", "echo", "-n", "--", "-v"],
        ["-xn", "book", "echo", "-n", "--", "-v"],
        ["book", "-w5", "-x", "--", "echo", "-n", "--", "-v"],
        ["--", "book", "--", "echo", "-n", "--", "-v"],
        ["--", "book", "echo", "-n", "--", "-v"],
        ["--wait=5", "book", "-o", "echo", "-n", "--", "-v"],
        ["--wait", "5", "--close", "book", "--nb", "-w", "0", "-e", "echo", "-n", "--", "-v"],
    ],
)
def test_what_follows_the_command_is_its_own(run_cli: CliRunner, words: list[str]) -> None:
    assert run_cli.run("run", *words) == (0, "-- -v", "")


@pytest.mark.parametrize("words", [["book", "-c"], ["-c"], ["-xc"], ["book", "--command"]])
def test_c_is_a_command_of_the_shell(run_cli: CliRunner, words: list[str]) -> None:
    rest = [] if "book" in words else ["book"]
    script = 'echo "$0 $INTERLOCK_NAME" | tr a-z A-Z'
    status, output, errors = run_cli.run("run", *words, script, *rest, extra={"SHELL": "/bin/sh"})
    assert (status, output, errors) == (0, "/BIN/SH BOOK\n", "")


# What it says


def test_v_tells_what_happens_with_times(run_cli: CliRunner) -> None:
    status, output, errors = run_cli.run("run", "-v", "book", "--", "sh", "-c", "exit 3")
    assert (status, output) == (3, "")
    waiting, obtained, released = errors.splitlines()
    assert waiting == f"interlock: Waiting for 'book' in {run_cli.url}."
    assert re.fullmatch(r"interlock: Acquired 'book' after \d+\.\d{3} s, fence \d+\.", obtained)
    assert re.fullmatch(r"interlock: Released 'book' after \d+\.\d{3} s, exit status 3\.", released)


def test_names_of_others_do_not_reach_the_terminal_raw(run_cli: CliRunner) -> None:
    _, _, errors = run_cli.run("run", "-v", "a\x1b[2Jb\nc", "--", "true")
    assert "\x1b" not in errors
    assert errors.count("\n") == 3


# What passes through


def test_input_and_output_and_errors_are_the_commands(run_cli: CliRunner) -> None:
    run = run_cli.start("run", "book", "--", "sh", "-c", "cat; echo problem >&2")
    run.say("one")
    assert run.read_line() == "one"
    run.say("two")
    assert run.ended() == (0, "two\n", "problem\n")


def test_no_file_of_interlock_leaks_into_the_command(run_cli: CliRunner) -> None:
    status, output, _ = run_cli.run("run", "book", "--", "sh", "-c", "ls -l /proc/self/fd", stdin=subprocess.DEVNULL)
    assert status == 0
    links = [line.partition(" -> ")[2] for line in output.splitlines() if " -> " in line]
    assert len(links) == 4  # three streams, and the folder that ls reads
    assert not any("locks" in link for link in links)


def test_closed_streams_stay_closed_and_are_not_reused(run_cli: CliRunner) -> None:
    closing = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *COMMAND]
    look = "for n in 0 1 2; do [ -e /proc/$$/fd/$n ] && echo open >> seen; done; echo looked >> seen"
    assert run_cli.run("run", "-v", "book", "--", "sh", "-c", look, command=closing) == (0, "", "")
    assert (run_cli.folder / "seen").read_text() == "looked\n"
    assert '"contents", "status": "ok"' in " ".join(run_cli.run("doctor", "--json")[1].split())


def signals_of(status: str) -> dict[str, int]:
    return {key: int(mask, 16) for key, mask in re.findall(r"^(Sig\w+):\s*([0-9a-f]{16})$", status, re.MULTILINE)}


def test_the_command_gets_the_signals_as_interlock_got_them(run_cli: CliRunner) -> None:
    show = ["cat", "/proc/self/status"]
    bare = subprocess.run(show, capture_output=True, text=True, check=True, restore_signals=True).stdout
    guarded = run_cli.run("run", "book", "--", *show)[1]
    for key in ("SigBlk", "SigIgn", "SigCgt", "SigPnd"):
        assert signals_of(guarded)[key] == signals_of(bare)[key]


def test_a_command_that_writes_to_a_closed_pipe_dies_quietly(run_cli: CliRunner) -> None:
    run = run_cli.start_unread("run", "book", "--", "yes")
    assert run.wait(timeout=30) == 128 + 13
    assert run.ended()[2] == ""


@pytest.mark.parametrize(("name", "words"), [("rich", ["ls"]), ("click", ["run", "--help"]), ("click", ["--help"])])
def test_without_click_or_rich_it_says_what_to_install(run_cli: CliRunner, name: str, words: list[str]) -> None:
    with run_cli.locks.lock("pen"):
        without = run_cli.python_with(f"raise ModuleNotFoundError('no {name}', name={name!r})\n", name)
        status, printed, errors = run_cli.run(*words, extra=without)
    assert (status, printed, errors.count("\n")) == (69, "", 1)
    assert 'pip install ".[cli]"' in errors


@pytest.mark.parametrize("words", [["book", "--", "true"], ["-n", "-E", "3", "book", "true"], ["book", "-c", ":"]])
def test_run_imports_nothing_that_is_slow(run_cli: CliRunner, words: list[str]) -> None:
    status, _, errors = run_cli.run("run", *words, command=[sys.executable, "-X", "importtime", *COMMAND[1:]])
    imported = {line.rpartition("|")[2].strip() for line in errors.splitlines()}
    assert status == 0
    assert "interlock.cli.run_locked" in imported
    slow = {"asyncio", "click", "dataclasses", "email", "hashlib", "importlib.metadata", "inspect", "logging",
            "random", "rich", "socket", "sqlite3", "subprocess", "tempfile", "textwrap", "uuid"}  # fmt: skip
    assert imported & slow == set()
