"""`interlock run`, `once` and `lead` in real processes of Windows."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.testing.waiting import RENEWED, eventually

COMMAND = (sys.executable, "-m", "interlock")
LIMIT = 60.0  # seconds; only a hanging process takes so long
SHORT = ("--ttl", str(RENEWED))
ACCESS_VIOLATION = 0xC0000005
SLEEPS = "import time; print('in', flush=True); time.sleep(60)"
LEAVES = """
import subprocess, sys
late = "import os, time\\nwhile not os.path.exists('go'): time.sleep(.05)\\nos.rename('go', 'gone')"
null = subprocess.DEVNULL
subprocess.Popen([sys.executable, "-c", late], stdin=null, stdout=null, stderr=null)
sys.exit(5)
"""
"""A command that leaves a process running until there is a file."""

# Instead of the console, which wine does not have: the command, told in its environment, looks for a file.
EVENTS = """
import os
kill = os.kill
def asked(pid, event):
    if event != 1:
        return kill(pid, event)
    print("CTRL_BREAK", file=open("asked", "a"))
os.kill = asked
"""
ASKED = """
import os, sys, time
print("in", flush=True)
until = time.monotonic() + 60
while not os.path.exists("asked") or sys.argv[1] == "stays":
    time.sleep(.05)
    assert time.monotonic() < until
os._exit(int(sys.argv[1]))
"""
"""A command that ends with a status when it was asked to, or that does not."""


class Runner:
    """The command on a store, in a folder."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.locks = interlock.connect(url)
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *words: str, command: Sequence[str] = COMMAND, **how: Any) -> subprocess.Popen[str]:
        """Start `interlock` with these words."""
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
        paths = (str(self.folder), os.environ.get("PYTHONPATH", ""))
        environment = {**os.environ, "INTERLOCK_URL": self.url, "PYTHONPATH": os.pathsep.join(paths)}
        process = subprocess.Popen([*command, *words], text=True, cwd=self.folder, env=environment, **streams)
        self._started.append(process)
        return process

    def run(self, *words: str, **how: Any) -> tuple[int, str, str]:
        """Run `interlock` with these words to its end, and to that of every process with its output."""
        return ended(self.start(*words, **how))

    def hold(self, *words: str) -> subprocess.Popen[str]:
        """Start a run, and wait until its command has begun."""
        process = self.start("run", *words, "book", "--", sys.executable, "-c", SLEEPS)
        assert read_line(process) == "in"
        return process

    def states(self, name: str = "book") -> list[str]:
        """Return the states of the claims of a lock."""
        return [view.state for view in self.locks.claims(name)]

    def replace_events(self) -> None:
        """Let the console's events for the command become a line of the file "asked"."""
        (self.folder / "sitecustomize.py").write_text(EVENTS)

    def close(self) -> None:
        """Kill what still runs."""
        for process in self._started:
            process.kill()
            process.communicate()
        self.locks.close()


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for the end of a process and of its output."""
    output, errors = process.communicate(timeout=LIMIT)
    return process.returncode, output, errors


def read_line(process: subprocess.Popen[str]) -> str:
    """Return the next line of output."""
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def python(text: str, *words: str) -> list[str]:
    """Return the words of a command that runs a script."""
    return ["--", sys.executable, "-c", text, *words]


@pytest.fixture
def runner(shared: str, tmp_path: Path) -> Iterator[Runner]:
    made = Runner(shared, tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("status", [0, 7, ACCESS_VIOLATION])
def test_the_exit_status_is_that_of_the_command(runner: Runner, status: int) -> None:
    code = f"import ctypes; ctypes.windll.kernel32.ExitProcess({status})"
    assert runner.run("run", "book", *python(code)) == (status, "", "")
    assert runner.states() == []


@pytest.mark.long
def test_the_command_gets_its_words_and_its_lock(runner: Runner) -> None:
    words = ["a b", 'q"q', "", "\\", "*"]
    shows = (
        "import os, sys; print(os.environ['INTERLOCK_NAME'], int(os.environ['INTERLOCK_FENCE']) > 0, sys.argv[1:])"
    )
    assert runner.run("run", "book", *python(shows, *words)) == (0, f"book True {words}\n", "")


def test_a_shell_command_is_run_by_cmd_as_it_is_written(runner: Runner) -> None:
    line = 'echo "a  b" %INTERLOCK_NAME%& if "x"=="x" exit 5'
    assert runner.run("run", "book", "-c", line) == (5, '"a  b" book\n', "")


@pytest.mark.parametrize(("options", "status"), [(["-n"], 1), (["-w", "0.05", "-E", "42"], 42)], ids=str)
def test_a_held_lock_exits_without_a_command(runner: Runner, options: list[str], status: int) -> None:
    with runner.locks.lock("book"):
        assert runner.run("run", *options, "book", *python("print('ran')")) == (status, "", "")
        assert runner.states() == ["using"]


@pytest.mark.long
def test_a_waiter_gets_the_lock_after_the_holder(runner: Runner) -> None:
    with runner.locks.lock("book"):
        waiter = runner.start("run", "book", *python("print('ran')"))
        eventually(lambda: runner.states() == ["using", "pending"], LIMIT)
    assert ended(waiter) == (0, "ran\n", "")


@pytest.mark.parametrize("command", ["no-such-command", ".\\no-such-command", "", ".\\text.txt"])
def test_a_command_that_cannot_run_is_69(runner: Runner, command: str) -> None:
    (runner.folder / "text.txt").write_text("no program")
    status, output, errors = runner.run("run", "book", "--", command)
    assert (status, output, errors.count("\n")) == (69, "", 1)
    assert errors.startswith("interlock: Cannot run ")
    assert runner.states() == []


def test_a_lost_lock_stops_the_command_and_is_70(runner: Runner) -> None:
    run = runner.hold(*SHORT)
    assert runner.locks.evict("book") == 1
    assert ended(run)[:2] == (70, "")


def test_a_run_past_its_time_is_stopped_with_its_processes(runner: Runner) -> None:
    sleeps = subprocess.list2cmdline([sys.executable, "-c", "import time; time.sleep(60)"])
    began = time.monotonic()
    assert runner.run("run", "--timeout", "0.2", "--grace", "0", "book", "-c", sleeps)[:2] == (124, "")
    assert time.monotonic() - began < LIMIT / 2
    assert runner.states() == []


def test_a_killed_interlock_takes_its_command_along(runner: Runner) -> None:
    run = runner.hold("--ttl", "1")
    run.kill()
    assert run.communicate(timeout=10)[0] == ""  # no process has its output
    assert runner.locks.lock("book").acquire(timeout=10) is not None


@pytest.mark.long
def test_what_the_command_leaves_running_does_not_keep_the_lock(runner: Runner) -> None:
    assert runner.run("run", "book", *python(LEAVES)) == (5, "", "")
    assert runner.states() == []
    (runner.folder / "go").touch()
    eventually((runner.folder / "gone").exists, LIMIT)


@pytest.mark.long
def test_with_keep_it_does(runner: Runner) -> None:
    run = runner.start("run", "-v", "--keep", "book", *python(LEAVES))
    assert run.stderr is not None
    while "holding 'book'" not in run.stderr.readline():
        assert run.poll() is None
    assert runner.run("run", "-n", "book", *python(""))[0] == 1
    (runner.folder / "go").touch()
    assert ended(run)[0] == 5
    assert (runner.folder / "gone").exists()


@pytest.mark.long
def test_at_least_holds_the_lock_after_the_command(runner: Runner) -> None:
    began = time.monotonic()
    assert runner.run("run", "--at-least", "3", "book", *python("import sys; sys.exit(3)"))[0] == 3
    assert time.monotonic() - began > 3


@pytest.mark.long
def test_a_run_inside_a_run_is_refused(runner: Runner) -> None:
    status, _, errors = runner.run("run", "book", "--", *COMMAND, "run", "book", *python(""))
    assert (status, "held by an enclosing interlock run" in errors) == (64, True)


def test_once_runs_a_command_until_it_was_completed(runner: Runner) -> None:
    once = ("once", "book", "--keep", "1h")
    assert runner.run(*once, *python("import sys; print('out'); sys.exit(3)")) == (3, "out\n", "")
    assert runner.run(*once, *python("print('out')")) == (0, "out\n", "")
    assert runner.run(*once, *python("print('out')")) == (0, "", "")


@pytest.mark.long
def test_lead_starts_its_command_again_and_has_a_successor(runner: Runner) -> None:
    first = runner.start("lead", "book", "--ttl", "1", *python("print('led', flush=True)"))
    assert [read_line(first), read_line(first)] == ["led", "led"]
    second = runner.start("lead", "book", "--ttl", "1", *python(SLEEPS))
    first.kill()
    assert read_line(second) == "in"


def test_an_output_without_a_reader_ends_a_list_silently(runner: Runner) -> None:
    reader, writer = os.pipe()
    watch = runner.start("watch", "--interval", "0.1", stdout=writer)
    os.close(writer)
    os.read(reader, 1)
    os.close(reader)
    assert ended(watch) == (1, None, "")


@pytest.mark.long
def test_a_token_is_read_from_a_line_of_windows(runner: Runner) -> None:
    with (runner.folder / "token").open("w") as file:
        assert runner.run("hold", "book", stdout=file)[0] == 0
    assert runner.states() == ["using"]
    with (runner.folder / "token").open() as file:
        assert runner.run("release", "-", stdin=file) == (0, "", "")
    assert runner.states() == []


# How the command is asked to end. wine has no CTRL_BREAK_EVENT, so these tests replace this one event.


def test_a_command_that_ends_when_asked_is_not_killed(runner: Runner) -> None:
    runner.replace_events()
    options = ("-v", "--timeout", "1", "--grace", "30")
    status, _, errors = runner.run("run", *options, "book", *python(ASKED, "7"))
    assert (status, "stopping it" in errors) == (124, True)
    assert (runner.folder / "asked").read_text() == "CTRL_BREAK\n"


def test_a_command_that_stays_is_killed_after_the_grace(runner: Runner) -> None:
    runner.replace_events()
    began = time.monotonic()
    assert runner.run("run", "--timeout", "1", "--grace", "2", "book", *python(ASKED, "stays"))[0] == 124
    assert 3 <= time.monotonic() - began < LIMIT / 2
    assert (runner.folder / "asked").read_text() == "CTRL_BREAK\n"


@pytest.mark.long
def test_a_lost_lock_asks_the_command_first(runner: Runner) -> None:
    runner.replace_events()
    run = runner.start("run", *SHORT, "--grace", "30", "book", *python(ASKED, "7"))
    assert read_line(run) == "in"
    assert runner.locks.evict("book") == 1
    assert ended(run)[0] == 70
    assert (runner.folder / "asked").read_text() == "CTRL_BREAK\n"


# Ctrl-C, in a real console


def start_in_console(runner: Runner, *words: str) -> subprocess.Popen[str]:
    """Start `interlock` in a console in which Ctrl-C is pressed as soon as there is a file "press"."""
    helper = str(Path(__file__).parent / "console.py")
    return runner.start(command=(sys.executable, helper, subprocess.list2cmdline([*COMMAND, *words])))


def wait_for_output(runner: Runner, text: str) -> None:
    """Wait until the command in the console has printed a text."""
    output = runner.folder / "output"
    eventually(lambda: output.exists() and text in output.read_text(), LIMIT)


def test_ctrl_c_ends_the_wait_and_leaves_nothing_behind(runner: Runner) -> None:
    with runner.locks.lock("book"):
        run = start_in_console(runner, "run", "-v", "book", *python("print('ran')"))
        eventually(lambda: runner.states() == ["using", "pending"], LIMIT)
        (runner.folder / "press").touch()
        assert ended(run)[0] == 130
        assert runner.states() == ["using"]
    assert "got SIGINT" in (runner.folder / "output").read_text()


@pytest.mark.parametrize(("words", "status", "states"), [(["run"], 0, []), (["once", "--keep", "1h"], 130, [])])
def test_ctrl_c_asks_the_command_to_end(runner: Runner, words: list[str], status: int, states: list[str]) -> None:
    runner.replace_events()
    run = start_in_console(runner, *words, "book", *python(ASKED, "0"))
    wait_for_output(runner, "in\n")
    (runner.folder / "press").touch()
    assert (ended(run)[0], runner.states()) == (status, states)
    assert (runner.folder / "asked").read_text() == "CTRL_BREAK\n"


@pytest.mark.long
def test_a_command_that_ctrl_c_has_ended_is_130(runner: Runner) -> None:
    code = "import ctypes; ctypes.windll.kernel32.ExitProcess(0xC000013A)"
    assert runner.run("run", "book", *python(code)) == (130, "", "")


@pytest.mark.long
def test_ctrl_c_ends_lead(runner: Runner) -> None:
    runner.replace_events()
    run = start_in_console(runner, "lead", "book", *python(ASKED, "7"))
    wait_for_output(runner, "in\n")
    (runner.folder / "press").touch()
    assert ended(run)[0] == 7


@pytest.mark.long
def test_ctrl_c_ends_lead_between_two_tries(runner: Runner) -> None:
    run = start_in_console(runner, "lead", "book", *python("import sys; sys.exit(3)"))
    wait_for_output(runner, "next try")
    (runner.folder / "press").touch()
    assert ended(run)[0] == 130
