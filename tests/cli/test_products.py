"""The commands on top of `interlock run`: once, lead, hold, renew, release, create."""

import json
import signal
import sys
from pathlib import Path

import pytest

from interlock.testing.waiting import eventually
from tests.support.house import House


def test_once_runs_a_command_until_it_was_completed(house: House) -> None:
    assert house.run("once", "n", "--keep", "1h", "--", "sh", "-c", "echo out; exit 3") == (3, "out\n", "")
    assert house.run("once", "n", "--keep", "1h", "--", "echo", "out") == (0, "out\n", "")
    assert house.run("once", "n", "--keep", "1h", "--", "echo", "again") == (0, "", "")
    status, output, _ = house.run("show", "n")
    assert (status, "kept for 59 min" in output) == (0, True)


def test_once_needs_a_time_that_it_understands(house: House) -> None:
    status, _, errors = house.run("once", "n", "--keep", "soon", "--", "true")
    assert (status, "10m, 2h or 1d" in errors) == (64, True)


def test_a_hold_outlives_its_process_and_is_renewed_and_released_by_its_token(house: House) -> None:
    status, token, _ = house.run("hold", "deploy", "--ttl", "30m", "--label", "release 7")
    assert status == 0
    assert house.run("run", "-n", "deploy", "--", "true")[0] == 1
    assert house.run("renew", token.strip(), "--ttl", "2h")[0] == 0
    (view,) = house.locks.claims("deploy")
    assert (view.label, view.expires_in > 7000) == ("release 7", True)
    assert house.run("hold", "deploy", "-w", "0")[0] == 1
    assert house.run("release", token.strip())[0] == 0
    for command in ("renew", "release"):
        status, _, errors = house.run(command, token.strip())
        assert (status, token.strip() in errors) == (1, False)


def test_run_takes_a_hold_over_and_releases_it(house: House) -> None:
    _, printed, _ = house.run("hold", "deploy", "--json")
    told = json.loads(printed)
    assert house.run("run", "--attach", told["token"], "--", "sh", "-c", "echo $INTERLOCK_NAME $INTERLOCK_FENCE") == (
        0,
        f"deploy {told['fence']}\n",
        "",
    )
    assert house.locks.claims("deploy") == []
    status, _, errors = house.run("run", "--attach", told["token"], "--", "echo", "no")
    assert (status, "used before" in errors, told["token"] in errors) == (70, True, False)


def test_a_wrong_token_is_refused_without_showing_it(house: House) -> None:
    status, _, errors = house.run("release", "interlock1.my-secret")
    assert (status, "no token" in errors, "secret" in errors) == (64, True, False)


def test_run_gives_one_of_several_things(house: House) -> None:
    inner = (
        f"echo $INTERLOCK_ITEM; {sys.executable} -m interlock run --one-of gpu=a,b -- sh -c 'echo $INTERLOCK_ITEM'"
    )
    assert house.run("run", "--one-of", "gpu=b,a", "--", "sh", "-c", inner)[:2] == (0, "a\nb\n")


def test_timeout_stops_the_command(house: House) -> None:
    assert house.run("run", "--timeout", "0.2", "book", "--", "sleep", "60")[0] == 124
    script = "trap '' TERM; while :; do sleep 0.05; done"
    assert house.run("run", "--timeout", "0.2", "--grace", "0.2", "book", "--", "sh", "-c", script)[0] == 124
    assert house.run("run", "--timeout", "60", "book", "--", "sh", "-c", "exit 3")[0] == 3
    assert house.locks.claims("book") == []


def test_without_words_the_help_is_printed(house: House) -> None:
    status, output, errors = house.run()
    assert (status, output.startswith("Usage: interlock"), errors) == (0, True, "")


def test_create_makes_a_store_ready(house: House) -> None:
    status, output, _ = house.run("create")
    assert (status, output.startswith("ready: ")) == (0, True)
    assert house.locks.claims() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_of_two_leads_until_it_ends(house: House, tmp_path: Path, number: signal.Signals) -> None:
    script = f"echo $$ >> {tmp_path}/led; exec sleep 60"
    first = house.start("lead", "job", "--", "sh", "-c", script)
    led = tmp_path / "led"
    eventually(lambda: led.exists() and led.read_text().count("\n") == 1)
    second = house.start("lead", "job", "--", "sh", "-c", script)
    eventually(lambda: len(house.locks.claims("job")) == 2)
    first.send_signal(number)
    assert first.wait(20) == 128 + number
    eventually(lambda: led.read_text().count("\n") == 2)
    second.send_signal(signal.SIGTERM)
    assert second.wait(20) == 143
    eventually(lambda: not house.locks.claims("job"))


def test_a_leader_whose_command_ends_stands_again(house: House, tmp_path: Path) -> None:
    led = tmp_path / "led"
    lead = house.start("lead", "job", "--", "sh", "-c", f"echo >> {led}; exit 1")
    eventually(lambda: led.exists() and led.read_text().count("\n") >= 2)
    lead.send_signal(signal.SIGTERM)
    assert lead.wait(20) in (1, 143)
