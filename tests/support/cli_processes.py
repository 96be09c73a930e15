"""The `interlock` command in real processes: start them, send them input, wait for them, and leave none behind."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import interlock
from interlock.testing.waiting import eventually

WAIT_LIMIT = 30.0  # seconds; only a hanging process takes so long
COMMAND = [sys.executable, "-m", "interlock"]

# Prints its process id, then each signal that it gets; exits at the end of its input, or at TERM if told so.
REPORTER = r"""
import os, select, signal, sys
kind = sys.argv[1]
news, tell = os.pipe()
os.set_blocking(tell, False)
signal.set_wakeup_fd(tell)  # so that one that comes just before select ends it
def told(number, frame):
    os.write(1, signal.Signals(number).name.encode() + b"\n")
    if kind == "leaves" and number == signal.SIGTERM:
        raise SystemExit(7)
for number in (1, 2, 3, 10, 12, 15, 18):
    signal.signal(number, told)
print(os.getpid(), flush=True)
while True:
    if news in select.select([0, news], [], [])[0]:
        os.read(news, 100)
    elif not (lines := os.read(0, 1000)):
        break
    else:
        os.write(1, b"line\n" * lines.count(b"\n"))
"""

LEAVE = "(read _; echo late) < fifo & echo $!"
"""A shell that leaves a process behind, which ends on command."""


def state_of(pid: int) -> str:
    """Return the letter by which the kernel tells the state of a process; "X" if there is none."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "X"


def is_running(pid: int) -> bool:
    """Return True if a process exists and is no zombie."""
    return state_of(pid) not in "ZX"


class Process(subprocess.Popen[str]):
    """A process whose output is read line by line; a `with` block waits for its end, and kills it after an error."""

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if error is not None:
            self.kill()  # also works on a stopped process
        super().__exit__(kind, error, traceback)

    def read_line(self) -> str:
        """Return its next line of output, without the line end."""
        assert self.stdout is not None
        return self.stdout.readline().rstrip("\n")

    def read_error_line(self) -> str:
        """Return the next line of its error stream, without the line end."""
        assert self.stderr is not None
        return self.stderr.readline().rstrip("\n")

    def say(self, line: str) -> None:
        """Write a line to its input."""
        assert self.stdin is not None
        self.stdin.write(line + "\n")
        self.stdin.flush()

    def ended(self) -> tuple[int, str, str]:
        """Close its input, wait for its end; return the exit status and the rest of output and errors."""
        output, errors = self.communicate(timeout=WAIT_LIMIT)
        return self.returncode, output, errors


class CliRunner:
    """A store in a folder of the test, and the commands that run on it."""

    def __init__(self, folder: Path) -> None:
        self.url = (folder / "locks").as_uri()
        self.folder = folder
        self.locks = interlock.connect(self.url)
        self._started: list[Process] = []

    def start(self, *words: str, command: list[str] = COMMAND, **how: Any) -> Process:
        """Start `interlock` with these words, on this store."""
        how.setdefault("env", {**os.environ, "INTERLOCK_URL": self.url, **how.pop("extra", {})})
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        process = Process([*command, *words], text=True, cwd=self.folder, **{**streams, **how})
        self._started.append(process)
        return process

    def start_and_read(self, said: str, *words: str, **how: Any) -> Process:
        """Start `interlock` with these words, and wait until it or its command has printed this line."""
        process = self.start(*words, **how)
        assert process.read_line() == said
        return process

    def start_in_line(self, *words: str, name: str = "book", **how: Any) -> Process:
        """Start `interlock` with these words, and wait until it is the only one that waits for the lock."""
        process = self.start(*words, **how)
        self.wait_for(1, "pending", name)
        return process

    def start_unread(self, *words: str) -> Process:
        """Start `interlock` with these words, and close its output as soon as it has written something."""
        out, into = os.pipe()
        process = self.start(*words, stdout=into)
        os.close(into)
        os.read(out, 1)
        os.close(out)
        return process

    def run(self, *words: str, **how: Any) -> tuple[int, str, str]:
        """Run `interlock` with these words to its end; return the exit status, output and errors."""
        return self.start(*words, **how).ended()

    def hold(self, name: str = "book", *options: str) -> Process:
        """Start a run that prints "in" when it holds the lock, and ends at the end of its input."""
        return self.start_and_read("in", "run", *options, name, "--", "sh", "-c", "echo in; cat; echo out")

    def wait_for(self, count: int, state: str, name: str = "book") -> None:
        """Wait until the line of a lock has so many claims in a state."""
        eventually(lambda: self.count(state, name) == count)

    def count(self, state: str, name: str = "book") -> int:
        """Return how many claims of a lock are in a state."""
        return sum(view.state == state for view in self.locks.claims(name))

    def script(self, name: str, text: str) -> str:
        """Write an executable script; return its path."""
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return str(path)

    def python_with(self, text: str, module: str = "sitecustomize") -> dict[str, str]:
        """Write a module that every Python process imports at its start; return the environment for that."""
        (self.folder / f"{module}.py").write_text(text)
        path = os.environ.get("PYTHONPATH")
        return {"PYTHONPATH": f"{self.folder}{os.pathsep}{path}" if path else str(self.folder)}

    def close(self) -> None:
        """Kill all processes that still run."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
            with suppress(subprocess.TimeoutExpired):  # its children may still have the pipes open
                process.communicate(timeout=5)
        self.locks.close()


def reporter(run_cli: CliRunner, *options: str, kind: str = "stays", **how: Any) -> tuple[Process, int]:
    """Start a run of the reporter; return the run and the process id of the command."""
    run = run_cli.start("run", *options, "book", "--", sys.executable, "-c", REPORTER, kind, **how)
    return run, int(run.read_line())


def leaving(run_cli: CliRunner, *options: str, then: str = "") -> tuple[Process, int]:
    """Start a run whose command leaves a process behind; return the run and the process id of what is left."""
    os.mkfifo(run_cli.folder / "fifo")
    run = run_cli.start("run", *options, "book", "--", "sh", "-c", LEAVE + then)
    return run, int(run.read_line())
