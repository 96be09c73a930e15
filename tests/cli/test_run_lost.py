"""`interlock run`: the lock is lost, its release fails, or an internal error ends the command."""

import os
import signal
import time

from interlock.testing.waiting import RENEWED, eventually
from tests.support.cli_processes import CliRunner, is_running, leaving, reporter

# The lock is lost

SHORT = ("--ttl", str(RENEWED))


def test_a_lost_lock_terminates_the_command_and_is_70(run_cli: CliRunner) -> None:
    run, _ = reporter(run_cli, *SHORT, kind="leaves")
    assert run_cli.locks.evict("book") == 1
    assert run.read_line() == "SIGTERM"
    status, _, errors = run.ended()
    assert status == 70
    assert (
        errors
        == "interlock: Lock 'book' was lost because its lease expired or it was evicted; stopping the command.\n"
    )


def test_a_command_that_ignores_TERM_is_killed_after_the_grace(run_cli: CliRunner) -> None:
    run, command = reporter(run_cli, *SHORT, "--grace", "2")  # long enough for it to say so
    run_cli.locks.evict("book")
    assert run.read_line() == "SIGTERM"
    assert run.wait(timeout=30) == 70
    assert not is_running(command)
    assert run.ended()[2].count("\n") == 1


def test_a_command_that_is_stopped_gets_the_TERM_too(run_cli: CliRunner) -> None:
    run, command = reporter(run_cli, *SHORT, "--grace", "60", kind="leaves")
    os.kill(command, signal.SIGSTOP)
    run_cli.locks.evict("book")
    assert run.ended()[0] == 70
    assert not is_running(command)


def test_with_keep_a_lost_lock_is_70(run_cli: CliRunner) -> None:
    run, _ = leaving(run_cli, "-v", "--keep", *SHORT)
    for _ in range(3):
        run.read_error_line()
    run_cli.locks.evict("book")
    assert run.wait(timeout=30) == 70
    assert any(
        "Stop them" in run.read_error_line() for _ in range(2)
    )  # the log has a line about it too, before or after
    (run_cli.folder / "fifo").write_text("go\n")


def test_a_run_stopped_past_its_lease_stops_its_command(run_cli: CliRunner) -> None:
    run, _ = reporter(run_cli, *SHORT, kind="leaves")
    run.send_signal(signal.SIGSTOP)
    with run_cli.locks.lock("book", timeout=25):
        run.send_signal(signal.SIGCONT)
        assert "SIGTERM" in {run.read_line(), run.read_line()}
        assert run.ended()[0] == 70


def test_the_lease_is_renewed_while_the_command_runs(run_cli: CliRunner) -> None:
    run_cli.hold("book", *SHORT)
    first = run_cli.locks.claims("book")[0]
    beyond = first.since + 2 * RENEWED
    renewed = eventually(
        lambda: next((v for v in run_cli.locks.claims("book") if time.time() + v.expires_in > beyond), None)
    )
    assert renewed.id == first.id


def test_a_failed_release_is_reported_and_keeps_the_exit_status(run_cli: CliRunner) -> None:
    failing = run_cli.python_with(
        "from interlock.core.errors import StoreError\n"
        "from interlock.stores.files._sync.queue import FileQueue\n"
        "def leave(queue, claim, done=0.0):\n"
        "    raise StoreError('the disk is on fire')\n"
        "FileQueue.leave = leave\n"
    )
    status, output, errors = run_cli.run("run", "book", "--", "sh", "-c", "exit 3", extra=failing)
    assert (status, output) == (3, "")
    assert errors == "interlock: Could not release lock 'book'; its lease will expire: the disk is on fire\n"


LOST_BEFORE = """
import os, interlock
from interlock.api._sync.locks import Locks
from interlock.client._sync.lock import Lock
acquire, lock = Lock.acquire, Locks.lock
Locks.lock = lambda locks, name, on_lost, **how: lock(locks, name, **how)  # nobody tells it: it has to ask
def loses(lock, *args, **how):
    grant = acquire(lock, *args, **how)
    with interlock.connect(os.environ["INTERLOCK_URL"]) as other:
        other.evict("book")
    assert not grant.renew()
    return grant
Lock.acquire = loses
"""


def test_a_lock_lost_before_the_start_starts_no_command(run_cli: CliRunner) -> None:
    status, output, errors = run_cli.run(
        "run", "book", "--", "echo", "started", extra=run_cli.python_with(LOST_BEFORE)
    )
    assert (status, output) == (70, "")
    assert errors.startswith("interlock: Lock 'book' was lost")
