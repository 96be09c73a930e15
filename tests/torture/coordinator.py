"""The coordinator: it starts the processes of a run, injects faults, ends the processes, and checks what is left."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any

from interlock.core.errors import StoreError
from interlock.core.redaction import masked
from tests.torture.faults import FAULTS, Fault, NotMade, Struck, StruckServer, disk_of, folder_of
from tests.torture.history import History
from tests.torture.plan import LONG_WAIT, Plan, loaded
from tests.torture.protected_resource import Shelf

STACKS_SECONDS = 1.0  # for a hanging process to print its stacks


class WorkerProcess:
    """A worker process; a dead one is replaced by a new process with the same number.

    Args:
        plan: the plan of the run.
        number: the number of the process.
        folder: the folder of the run.
        history: the history of the coordinator.
        shelf: the port of the shelf.

    Attributes:
        other_interface: "threads" or "tasks", the colour of faults that can't strike this process.
    """

    def __init__(self, plan: Plan, number: int, folder: Path, history: History, shelf: int) -> None:
        self._plan, self._number, self._folder, self._history, self._shelf = plan, number, folder, history, shelf
        self.other_interface = "threads" if plan.of_tasks(number) else "tasks"
        self._lives = 0
        self._mutex = threading.Lock()
        self.start()

    def start(self) -> None:
        """Start it."""
        self.key = f"{self._number}.{self._lives}"
        facts = {
            "plan": self._plan.as_json(), "number": self._number, "life": self._lives, "shelf": self._shelf,
            **self.facts(self._folder),
        }  # fmt: skip
        with open(self._folder / "errors", "ab") as file, self.errors_into(file) as errors:
            self.process = subprocess.Popen(
                self.command(), env=self.environment(),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True,
            )  # fmt: skip
        self._lives += 1
        self.order(json.dumps(facts))

    def errors_into(self, file: IO[bytes]) -> AbstractContextManager[IO[bytes]]:
        """Return where the process writes its errors, which come into a file."""
        return nullcontext(file)

    def facts(self, folder: Path) -> dict[str, Any]:
        """Return the search path of the process, and the path of its history."""
        return {"path": sys.path, "history": str(folder / "history.jsonl")}

    def command(self) -> list[str]:
        """Return the command that runs a worker."""
        return [sys.executable, "-m", "tests.torture.worker"]

    def environment(self) -> dict[str, str] | None:
        """Return the environment of that command; None for that of this process."""
        return None

    def wait_ready(self) -> None:
        """Wait until the process works, or has died."""
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def order(self, word: str) -> None:
        """Send an order; a dead process ignores it."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(word.encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            pass

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def replace_dead(self) -> None:
        """If the process has died, record that and start a new one."""
        with self._mutex:
            if self.process.poll() is not None:
                self._over(hung=False)
                self.start()

    def end(self, wait_limit: float) -> None:
        """Wait for the end of the process; if it hangs, let it print its stacks, and kill it."""
        self.order("end")
        hung = False
        try:
            self.process.wait(wait_limit)
        except subprocess.TimeoutExpired:
            hung = True
            self.send(signal.SIGABRT)
            time.sleep(STACKS_SECONDS)
            self.process.kill()
            self.process.wait()
        self._over(hung)

    def _over(self, hung: bool) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(OSError):
                pipe.close()
        self._history.write("exit", of=self.key, status=self.process.returncode, hung=hung)


class Coordinator:
    """One run.

    Args:
        plan: the plan.
        folder: the folder for the history and the processes' error output.
        server: the server of the store, if faults may strike it.

    Attributes:
        workers: the class of its processes.
    """

    workers = WorkerProcess

    def __init__(self, plan: Plan, folder: Path, server: StruckServer | None) -> None:
        self._plan, self._folder, self._server = plan, folder, server
        self._random = random.Random(plan.seed)
        self._history = History(folder / "history.jsonl", "coordinator")
        self._children: list[WorkerProcess] = []
        self._striking: list[threading.Thread] = []
        self._one_at_a_time = threading.Lock()
        self._calm = 0.0
        self._not_made: tuple[str, Exception] | None = None

    def run(self) -> Path:
        """Run; return the path of the history."""
        plan = {**self._plan.as_json(), "store": masked(self._plan.store)}
        self._history.write("plan", plan=plan, date=time.strftime("%Y-%m-%d %H:%M"), faults=len(self._plan.faults))
        with Shelf(self._history) as shelf:
            try:
                for number in range(self._plan.procs):
                    self._children.append(self.workers(self._plan, number, self._folder, self._history, shelf.port))
                for child in self._children:
                    child.wait_ready()
                self._strike()
            finally:
                for child in self._children:
                    child.send(signal.SIGCONT)
                ends = [
                    threading.Thread(target=child.end, args=(2 * LONG_WAIT + self._plan.io,))
                    for child in self._children
                ]
                for thread in ends:
                    thread.start()
                for thread in ends:
                    thread.join()
            if self._not_made is not None:
                name, error = self._not_made
                raise NotMade(f"the fault {name} was not made: {type(error).__name__}: {error}") from error
            self._history.write("final", counters=shelf.counters(), **self.left())
        return self._folder / "history.jsonl"

    def _strike(self) -> None:
        end = time.monotonic() + self._plan.secs
        calm = self._calm = end - self._plan.calm
        while self._plan.faults and (now := time.monotonic()) < calm and self._not_made is None:
            time.sleep(min(self._random.uniform(0.2, 1.8) * self._plan.every, calm - now))
            for child in self._children:
                child.replace_dead()
            name = self._random.choice(self._plan.faults)
            fit = [child for child in self._children if FAULTS[name].where != child.other_interface]
            if not fit:
                continue
            child = self._random.choice(fit)
            thread = threading.Thread(target=self._make, args=(name, FAULTS[name], child))
            thread.start()
            self._striking.append(thread)
        for thread in self._striking:
            thread.join()
        for child in self._children:
            child.replace_dead()
        self._history.write("calm")
        if self._not_made is None:
            # In full also if the faults took longer than planned: two restarts of a server on a busy machine.
            time.sleep(max(self._plan.calm, end - time.monotonic()))

    def _make(self, name: str, fault: Fault, child: WorkerProcess) -> None:
        shared = fault.where in ("files", "disk", "server", "network")
        url = self._plan.store
        luck = random.Random(self._random.random())
        struck = Struck(child, self._plan.ttl, luck, folder_of(url), disk_of(url), self._server)
        with self._one_at_a_time if shared else threading.Lock():
            if time.monotonic() > self._calm or self._not_made is not None:
                return  # the faults before took too long, or one failed and left the store in an unknown state
            since, key, problem = time.monotonic(), child.key, ""
            try:
                fault.make(struck)
            except Exception as error:
                problem = str(error)
                if fault.where in ("server", "network") or not isinstance(error, OSError):
                    self._not_made = name, error  # on files, the file to remove may be gone
            loses = fault.loses or (self._server is not None and name in self._server.forgets)
            self._history.write(
                "fault", fault=name, since=since, of="" if shared else key, loses=loses, problem=problem
            )

    def left(self) -> dict[str, Any]:
        """Return the claims and files that are left in the store after all leases have had time to expire."""
        deadline = time.monotonic() + 2 * self._plan.ttl + self._plan.slack + self._plan.io
        if self._plan.store.startswith("memory:"):
            return {"claims": [], "files": []}
        locks = loaded(self._plan.connect)(self._plan.store, namespace=self._plan.namespace)
        claims: list[Any] = []
        while time.monotonic() < deadline:
            try:
                claims = locks.claims()
            except StoreError:
                time.sleep(0.1)
                continue
            for view in claims:
                if view.name.startswith("once:"):
                    locks.forget(view.name)  # the record of a run is no leftover
            if not claims:
                break
            time.sleep(0.05)
        locks.close()
        server: dict[str, list[str]] = {}
        while self._server is not None and time.monotonic() < deadline:
            server = self._server.left()
            if not any(server.values()):
                break
            time.sleep(0.05)
        folder = folder_of(self._plan.store)
        pipes = [] if folder is None else sorted(os.listdir(folder / "alive"))
        files = [name for name in pipes if not name.startswith("foreign") and not _is_running(name)]
        return {"claims": [f"{view.name} {view.state} of {view.pid}" for view in claims], "files": files, **server}


def _is_running(pipe: str) -> bool:
    """Return True if the process of a liveness pipe lives: another user of the folder."""
    try:
        os.kill(int(pipe.partition("-")[0]), 0)
    except (ValueError, ProcessLookupError):
        return False
    return True


def run(plan: Plan, folder: str | Path | None = None, server: StruckServer | None = None) -> Path:
    """Run a plan.

    Args:
        plan: the plan.
        folder: the folder to write to; None for a new temporary one.
        server: the server of the store, if faults may strike it.

    Returns:
        The path of the history.

    Raises:
        NotMade: a fault of the server or the network failed; the history ends there.
    """
    where = Path(tempfile.mkdtemp(prefix="torture-") if folder is None else folder)
    where.mkdir(parents=True, exist_ok=True)
    return Coordinator(plan, where, server).run()
