"""The commands on top of `interlock run`: once, lead, hold, renew, release, create."""

import errno
import json
import os
import signal
import sys
from pathlib import Path

import pytest

import interlock
from interlock.testing.waiting import eventually
from tests.support.cli_processes import COMMAND, REPORTER, CliRunner


def test_once_runs_a_command_until_it_was_completed(run_cli: CliRunner) -> None:
    assert run_cli.run("once", "n", "--keep", "1h", "--", "sh", "-c", "echo out; exit 3") == (3, "out\n", "")
    assert run_cli.run("once", "n", "--keep", "1h", "--", "echo", "out") == (0, "out\n", "")
    assert run_cli.run("once", "n", "--keep", "1h", "--", "echo", "again") == (0, "", "")
    status, output, _ = run_cli.run("show", "n")
    assert (status, "kept for 59 min" in output) == (0, True)


def test_once_needs_a_time_that_it_understands(run_cli: CliRunner) -> None:
    status, _, errors = run_cli.run("once", "n", "--keep", "soon", "--", "true")
    assert (status, "10m, 2h or 1d" in errors) == (64, True)


def test_a_hold_outlives_its_process_and_is_used_by_its_token(run_cli: CliRunner) -> None:
    status, token, _ = run_cli.run("hold", "deploy", "--ttl", "30m", "--label", "release 7")
    assert status == 0
    assert run_cli.run("run", "-n", "deploy", "--", "true")[0] == 1
    assert run_cli.run("renew", token.strip(), "--ttl", "2h")[0] == 0
    (view,) = run_cli.locks.claims("deploy")
    assert (view.label, view.expires_in > 7000) == ("release 7", True)
    assert run_cli.run("hold", "deploy", "-w", "0")[0] == 1
    assert run_cli.run("release", token.strip())[0] == 0
    for command in ("renew", "release"):
        status, _, errors = run_cli.run(command, token.strip())
        assert (status, token.strip() in errors) == (1, False)


def test_run_takes_a_hold_over_and_releases_it(run_cli: CliRunner) -> None:
    _, printed, _ = run_cli.run("hold", "deploy", "--json")
    told = json.loads(printed)
    assert run_cli.run(
        "run", "--attach", told["token"], "--", "sh", "-c", "echo $INTERLOCK_NAME $INTERLOCK_FENCE"
    ) == (
        0,
        f"deploy {told['fence']}\n",
        "",
    )
    assert run_cli.locks.claims("deploy") == []
    status, _, errors = run_cli.run("run", "--attach", told["token"], "--", "echo", "no")
    assert (status, "used before" in errors, told["token"] in errors) == (70, True, False)


def test_a_wrong_token_is_refused_without_showing_it(run_cli: CliRunner) -> None:
    status, _, errors = run_cli.run("release", "interlock1.my-secret")
    assert (status, "not a token" in errors, "secret" in errors) == (64, True, False)


def test_run_gives_one_of_several_things(run_cli: CliRunner) -> None:
    inner = (
        f"echo $INTERLOCK_ITEM; {sys.executable} -m interlock run --one-of gpu=a,b -- sh -c 'echo $INTERLOCK_ITEM'"
    )
    assert run_cli.run("run", "--one-of", "gpu=b,a", "--", "sh", "-c", inner)[:2] == (0, "a\nb\n")


def test_timeout_stops_the_command(run_cli: CliRunner) -> None:
    assert run_cli.run("run", "--timeout", "0.2", "book", "--", "sleep", "60")[0] == 124
    script = "trap '' TERM; while :; do sleep 0.05; done"
    assert run_cli.run("run", "--timeout", "0.2", "--grace", "0.2", "book", "--", "sh", "-c", script)[0] == 124
    assert run_cli.run("run", "--timeout", "60", "book", "--", "sh", "-c", "exit 3")[0] == 3
    assert run_cli.locks.claims("book") == []


def test_without_words_the_help_is_printed(run_cli: CliRunner) -> None:
    status, output, errors = run_cli.run()
    assert (status, output.startswith("Usage: interlock"), errors) == (0, True, "")


def test_create_makes_a_store_ready(run_cli: CliRunner) -> None:
    status, output, _ = run_cli.run("create")
    assert (status, output.startswith("ready: ")) == (0, True)
    assert run_cli.locks.claims() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_of_two_leads_until_it_ends(run_cli: CliRunner, tmp_path: Path, number: signal.Signals) -> None:
    script = f"echo $$ >> {tmp_path}/led; exec sleep 60"
    first = run_cli.start("lead", "job", "--", "sh", "-c", script)
    led = tmp_path / "led"
    eventually(lambda: led.exists() and led.read_text().count("\n") == 1)
    second = run_cli.start("lead", "job", "--", "sh", "-c", script)
    eventually(lambda: len(run_cli.locks.claims("job")) == 2)
    first.send_signal(number)
    assert first.wait(20) == 128 + number
    eventually(lambda: led.read_text().count("\n") == 2)
    second.send_signal(signal.SIGTERM)
    assert second.wait(20) == 143
    eventually(lambda: not run_cli.locks.claims("job"))


def test_a_leader_whose_command_ends_stands_again(run_cli: CliRunner, tmp_path: Path) -> None:
    led = tmp_path / "led"
    lead = run_cli.start("lead", "job", "--", "sh", "-c", f"echo >> {led}; exit 1")
    eventually(lambda: led.exists() and led.read_text().count("\n") >= 2)
    lead.send_signal(signal.SIGTERM)
    assert lead.wait(20) in (1, 143)


def test_a_token_from_input_leaves_the_rest_to_the_command(run_cli: CliRunner, tmp_path: Path) -> None:
    _, token, _ = run_cli.run("hold", "job")
    rows = tmp_path / "rows"
    rows.write_text(f"{token}row 1\nrow 2\n")
    with rows.open() as file:
        assert run_cli.run("run", "--attach", "-", "--", "cat", stdin=file) == (0, "row 1\nrow 2\n", "")


@pytest.mark.parametrize("words", [("run", "--attach"), ("renew",), ("release",)], ids=lambda words: words[0])
def test_a_token_is_used_in_its_own_store(run_cli: CliRunner, tmp_path: Path, words: tuple[str, ...]) -> None:
    command = ["--", "echo", "hi"] if words[0] == "run" else []
    _, printed, _ = run_cli.run("hold", "job", "--namespace", "shop")
    token = printed.strip()
    other = (tmp_path / "other").as_uri()
    status, output, errors = run_cli.run(*words, token, *command, extra={"INTERLOCK_URL": other})
    assert (status, output, token in errors) == (64, "", False)
    assert run_cli.url in errors
    assert f"{other}. " in errors
    with interlock.connect(run_cli.url, namespace="shop") as shop:
        assert len(shop.claims("job")) == 1
        environment = {key: value for key, value in os.environ.items() if key != "INTERLOCK_URL"}
        assert run_cli.run(*words, token, *command, env=environment)[0] == 0
        assert len(shop.claims("job")) == (words[0] == "renew")


@pytest.mark.parametrize("words", [("run", "--attach"), ("renew",), ("release",)], ids=lambda words: words[0])
def test_a_used_token_is_told_by_any_spelling_of_its_store(run_cli: CliRunner, words: tuple[str, ...]) -> None:
    _, printed, _ = run_cli.run("hold", "job")
    token = printed.strip()
    other = run_cli.url.replace("file://", "file://localhost") + "/../locks/"
    assert run_cli.run("release", token)[0] == 0
    command = ["--", "true"] if words[0] == "run" else []
    status, _, errors = run_cli.run(*words, token, "--store", other, *command)
    assert (status, "no longer" in errors) == (70 if words[0] == "run" else 1, True)


def has_no_reader(pipe: Path) -> bool:
    """Tell whether no process can read a named pipe."""
    try:
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        return error.errno == errno.ENXIO
    return False


@pytest.mark.parametrize("closed", ["> /dev/full", ">&-", "> fifo"])
def test_a_hold_whose_token_is_not_written_is_released(run_cli: CliRunner, closed: str) -> None:
    os.mkfifo(run_cli.folder / "fifo")
    reader = os.open(run_cli.folder / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    shell = ["sh", "-c", f'exec {closed}; echo >&2; read _; exec "$@"', "sh", *COMMAND]
    process = run_cli.start("hold", "job", "--ttl", "1h", command=shell)
    assert process.read_error_line() == ""
    os.close(reader)
    eventually(lambda: has_no_reader(run_cli.folder / "fifo"))  # a process that was just forked may still have it
    process.say("go")
    assert process.wait(30) == 74
    assert process.read_error_line().startswith("interlock: The token cannot be written")
    assert run_cli.run("run", "-n", "job", "--", "true")[0] == 0


def test_a_name_of_lead_is_never_an_option(run_cli: CliRunner, tmp_path: Path) -> None:
    name = f"-ctouch {tmp_path}/ran"
    lead = run_cli.start("lead", "--", name, "sh", "-c", "echo in; exec sleep 60")
    assert lead.read_line() == "in"
    assert [view.name for view in run_cli.locks.claims()] == [name]
    lead.send_signal(signal.SIGTERM)
    assert lead.wait(20) == 143
    assert not (tmp_path / "ran").exists()


def test_lead_ends_by_a_signal_while_it_waits_to_try_again(run_cli: CliRunner) -> None:
    lead = run_cli.start("lead", "job", "--", "sh", "-c", "exit 3")
    assert "'sh' ended with 3; next try for 'job' in about 2 s" in lead.read_error_line()
    lead.send_signal(signal.SIGTERM)
    assert lead.wait(20) == 143


def test_lead_tries_again_when_the_store_is_away(run_cli: CliRunner) -> None:
    lead = run_cli.start("lead", "job", "--store", "redis://127.0.0.1:1", "--", "true")
    assert "The store cannot be used" in lead.read_error_line()
    assert "next try for 'job'" in lead.read_error_line()
    lead.send_signal(signal.SIGINT)
    assert lead.wait(20) == 130


def test_lead_leaves_a_signal_ignored_and_passes_others_on(run_cli: CliRunner) -> None:
    words = ("lead", "job", "--", sys.executable, "-c", REPORTER, "leaves")
    lead = run_cli.start(*words, command=["nohup", *COMMAND])
    assert lead.read_line().isdigit()
    lead.send_signal(signal.SIGHUP)
    lead.send_signal(signal.SIGUSR1)
    assert lead.read_line() == "SIGUSR1"
    lead.say("still here")
    assert lead.read_line() == "line"
    lead.send_signal(signal.SIGTERM)
    assert lead.read_line() == "SIGTERM"
    assert lead.wait(20) == 7


@pytest.mark.parametrize(("number", "status", "states"), [(15, 143, []), (2, 130, []), (10, 0, ["done"])])
def test_once_records_no_run_that_a_signal_ended(
    run_cli: CliRunner, number: int, status: int, states: list[str]
) -> None:
    script = f"trap 'exit 0' {number}; echo in; while :; do sleep 0.05; done"
    once = run_cli.start("once", "n", "--keep", "1h", "--", "bash", "-c", script)
    assert once.read_line() == "in"
    once.send_signal(number)
    assert once.wait(20) == status
    assert [view.state for view in run_cli.locks.claims("n")] == states


@pytest.mark.parametrize("items", ["g", "g=", "g=a,,b"])
def test_one_of_needs_its_items(run_cli: CliRunner, items: str) -> None:
    status, _, errors = run_cli.run("run", "--one-of", items, "--", "true")
    assert (status, "NAME=ITEM" in errors) == (64, True)


def test_the_words_of_an_option_are_no_options(run_cli: CliRunner) -> None:
    assert run_cli.run("run", "--label", "--attach", "book", "--", "echo", "hi") == (0, "hi\n", "")


@pytest.mark.parametrize(
    "words",
    [("watch", "--interval"), ("run", "book", "-w"), ("hold", "book", "-w"), ("lead", "book", "--grace")],
    ids=lambda words: words[0],
)
@pytest.mark.parametrize("time", ["1e300", "1e10", "nan", "-1"])
def test_a_time_that_no_clock_can_wait_is_refused(run_cli: CliRunner, words: tuple[str, ...], time: str) -> None:
    status, _, errors = run_cli.run(*words, time, *(["--", "true"] if words[0] in ("run", "lead") else []))
    assert (status, errors.count("\n"), "is not a duration" in errors) == (64, 1, True)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [("ls",), ("ls", "--json"), ("show", "book"), ("--version",), ("ls", "--help")])
def test_output_on_a_full_disk_is_74_with_one_line(
    run_cli: CliRunner, words: tuple[str, ...], unbuffered: str
) -> None:
    with open("/dev/full", "w") as full:
        status, _, errors = run_cli.run(*words, stdout=full, extra={"PYTHONUNBUFFERED": unbuffered})
    assert (status, errors.count("\n"), "No space left" in errors) == (74, 1, True)


@pytest.mark.parametrize("words", [("ls",), ("show", "図書")])
def test_a_terminal_that_lacks_a_letter_shows_all_names(run_cli: CliRunner, words: tuple[str, ...]) -> None:
    grants = [run_cli.locks.lock(name, label="図").acquire() for name in ("図書", "plain")]
    status, output, errors = run_cli.run(*words, extra={"PYTHONIOENCODING": "latin-1"})
    assert (status, errors, r"\u56f3" in output, "plain" in output) == (0, "", True, words == ("ls",))
    assert all(grants)


@pytest.mark.parametrize("limit", [30, 90, 1024])
def test_keep_works_with_few_descriptors(run_cli: CliRunner, limit: int) -> None:
    shell = ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", *COMMAND]
    assert run_cli.run("run", "--keep", "book", "--", "echo", "hi", command=shell) == (0, "hi\n", "")


def test_once_counts_no_run_that_ended_with_its_group(run_cli: CliRunner) -> None:
    script = "trap 'exit 0' TERM; echo in; while :; do sleep 0.05; done"
    for _ in range(5):
        once = run_cli.start("once", "n", "--keep", "1h", "--", "bash", "-c", script, start_new_session=True)
        assert once.read_line() == "in"
        os.killpg(once.pid, signal.SIGTERM)
        assert once.wait(20) == 143
    assert run_cli.locks.claims("n") == []


def test_once_counts_a_run_that_signals_its_own_group(run_cli: CliRunner) -> None:
    words = ("once", "n", "--keep", "1h", "--", "bash", "-c", "trap '' TERM; kill 0; echo done")
    assert run_cli.run(*words, start_new_session=True) == (0, "done\n", "")
    assert [view.state for view in run_cli.locks.claims("n")] == ["done"]
