"""The table of faults, and the functions that inject them."""

import os
import random
import signal
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from tests.servers.home import Closing

if TYPE_CHECKING:
    from tests.torture.coordinator import WorkerProcess

PAGE = 4096
SMALL = 64 << 20  # bytes; a larger file system is never filled


class NotMade(Exception):
    """A fault could not be injected: the run was aborted, and says nothing about the locks."""


class StruckServer(Closing):
    """A server into which faults can be injected; only the methods of faults in `can` are called.

    Attributes:
        url: the URL of the store.
        how: options of the plan.
        network: the proxy before it, if faults may strike that too.
        can: the names of its possible faults, of server and network.
        forgets: the names of faults after which it may have lost claims, besides those that always do that.
    """

    url: str
    how: dict[str, Any]
    network: Any = None
    can: Collection[str] = ()
    forgets: Collection[str] = ()

    def pause(self) -> None:
        """Stop its process; connections stay open without answers."""

    def resume(self) -> None:
        """Continue its process."""

    def restart(self) -> None:
        """Kill it, and start it again at the same address."""

    def wipe(self) -> None:
        """Delete all data."""

    def empty(self) -> None:
        """Kill it, and start it again without its data."""

    def deafen(self) -> None:
        """Cut the connections on which processes receive notifications."""

    def fail_over(self) -> None:
        """Kill it, and promote a replica."""

    def step(self, seconds: float) -> None:
        """Set its clock forward, or back."""

    def left(self) -> dict[str, list[str]]:
        """Return the keys and connections that are left after all processes have ended; there should be none."""
        raise NotImplementedError


@dataclass
class Struck:
    """The targets and parameters of a fault.

    Attributes:
        process: the worker to strike.
        ttl: seconds of lease.
        random: the source of random durations.
        folder: the folder of a file store.
        disk: a folder on the file system of the store, if that is small enough to be filled.
        server: the server of the store, if faults may strike it.
    """

    process: "WorkerProcess"
    ttl: float
    random: random.Random
    folder: Path | None = None
    disk: Path | None = None
    server: StruckServer | None = None


class Fault(NamedTuple):
    """One kind of fault.

    Attributes:
        help: a description.
        make: injects it, and returns when it is over.
        where: its target: "process", "threads", "tasks", "files", "disk", "server" or "network".
        stalls: how many leases beyond its duration others may have to wait.
        loses: True if the store loses claims, so that two claims may hold until the next renewal.
    """

    help: str
    make: Callable[[Struck], object]
    where: str
    stalls: float = 0.0
    loses: bool = False


def _signal(number: signal.Signals) -> Callable[[Struck], None]:
    return lambda struck: struck.process.send(number)


def _order(word: str) -> Callable[[Struck], None]:
    return lambda struck: struck.process.order(word)


def _stop(struck: Struck) -> None:
    struck.process.send(signal.SIGSTOP)
    time.sleep(struck.ttl * struck.random.uniform(0.1, 2.5))
    struck.process.send(signal.SIGCONT)


def _move(struck: Struck) -> None:
    folder = the(struck.folder)
    folder.rename(folder.with_name(f"{folder.name}-{time.monotonic_ns()}"))


def _liveness(struck: Struck) -> None:
    for pipe in (the(struck.folder) / "alive").glob("*"):
        if struck.random.random() < 0.3:
            pipe.unlink(missing_ok=True)


def _foreign(struck: Struck) -> None:
    folder, name = the(struck.folder), f"foreign-{time.monotonic_ns()}"
    os.mkfifo(folder / "lines" / name)
    (folder / "lines" / f"{name}-link").symlink_to("/nowhere")
    (folder / "alive" / name).write_bytes(b"\0" * 700)


def _full(struck: Struck) -> None:
    filler = the(struck.disk) / f"filler-{time.monotonic_ns()}"
    try:
        with open(filler, "wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"x" * PAGE)
        time.sleep(struck.ttl * struck.random.uniform(0.1, 2.0))
    finally:
        filler.unlink()


def _pause(struck: Struck) -> None:
    server = the(struck.server)
    server.pause()
    time.sleep(struck.ttl * struck.random.uniform(0.1, 2.0))
    server.resume()


def _server(method: str) -> Callable[[Struck], None]:
    return lambda struck: getattr(the(struck.server), method)()


def _step(sign: int) -> Callable[[Struck], None]:
    return lambda struck: the(struck.server).step(sign * struck.ttl * struck.random.uniform(0.3, 2.0))


def _net(name: str, lasts: float = 0.0) -> Callable[[Struck], None]:
    def make(struck: Struck) -> None:
        network = the(struck.server).network
        getattr(network, name)(*((struck.random.uniform(0.005, 0.05),) if name in ("delay", "scatter") else ()))
        if lasts:
            time.sleep(struck.ttl * struck.random.uniform(0.1, lasts))
            if name == "black_hole":
                network.refuse()  # so that no connection continues after lost bytes
            network.restore()

    return make


def the(found: Any) -> Any:
    """Return a target, if the run has it.

    Raises:
        ValueError: the target is None.
    """
    if found is None:
        raise ValueError("this run has nothing that this fault could strike")
    return found


FAULTS = {
    "kill": Fault("kill -9 a process", _signal(signal.SIGKILL), "process", stalls=1),
    "stop": Fault("SIGSTOP a process, often past its leases", _stop, "process", stalls=1),
    "interrupt": Fault("Ctrl-C", _signal(signal.SIGINT), "process", stalls=1),
    "term": Fault("TERM: an exit while daemon threads work", _signal(signal.SIGTERM), "process", stalls=1),
    "close": Fault("close() while others wait", _order("close"), "process"),
    "fork": Fault("fork, with a child that locks", _order("fork"), "threads"),
    "cancel": Fault("cancel a task", _order("cancel"), "tasks"),
    "loop": Fault("end the event loop, begin another", _order("loop"), "tasks"),
    "move": Fault("rename the folder", _move, "files", stalls=1, loses=True),
    "liveness": Fault("remove liveness and wake-up pipes", _liveness, "files", stalls=1, loses=True),
    "foreign": Fault("drop foreign files into the folder", _foreign, "files"),
    "full": Fault("fill the file system for a while, if it is a small one", _full, "disk", stalls=1),
    "pause": Fault("SIGSTOP the server", _pause, "server", stalls=1),
    "restart": Fault("kill the server and start it again", _server("restart"), "server", stalls=1),
    "wipe": Fault("delete all data of the server", _server("wipe"), "server", stalls=1, loses=True),
    "empty": Fault("kill the server and start it without its data", _server("empty"), "server", stalls=1, loses=True),
    "deafen": Fault("cut the connections of those who listen", _server("deafen"), "server", stalls=1),
    "failover": Fault("kill the server and let a replica take its place", _server("fail_over"), "server", stalls=1),
    "ahead": Fault("set the server's clock forward", _step(1), "server", stalls=1),
    "behind": Fault("set the server's clock back", _step(-1), "server", stalls=2),  # leases expire later by that
    "cut": Fault("cut all connections", _net("cut"), "network", stalls=1),
    "forget": Fault("swallow what goes through the connections of now", _net("forget"), "network", stalls=1),
    "delay": Fault("pass replies late", _net("delay", 1.0), "network", stalls=1),
    "scatter": Fault("pass replies late, each by another time", _net("scatter", 1.0), "network", stalls=1),
    "hole": Fault("swallow everything for a while", _net("black_hole", 1.0), "network", stalls=1),
    "drop": Fault(
        "cut a connection after its request, before its reply", _net("drop_next_reply"), "network", stalls=1
    ),
}


def folder_of(url: str) -> Path | None:
    """Return the folder of a file store; None for another store."""
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def disk_of(url: str) -> Path | None:
    """Return a folder on the file system of a file store; None for another store, or if that is not small."""
    parts = urlsplit(url)
    if not parts.scheme.startswith(("file", "sqlite", "share")):
        return None
    folder = Path(unquote(parts.path.removeprefix("/" if parts.scheme.startswith("sqlite") else ""))).parent
    try:
        found = os.statvfs(folder)
    except OSError:  # the folder does not exist yet
        return None
    return folder if found.f_blocks * found.f_frsize <= SMALL else None


def possible(url: str, colour: str, server: StruckServer | None) -> list[str]:
    """Return the names of the possible faults of a run.

    Args:
        url: the URL of the store.
        colour: the colour of the processes.
        server: the server, if faults may strike it.
    """
    has = {"process"} | {word for word in ("threads", "tasks") if colour in (word, "both")}
    if url.startswith("memory:"):
        has -= {"process"}
        return ["close", *(name for name, fault in FAULTS.items() if fault.where in has - {"threads"})]
    if folder_of(url) is not None:
        has.add("files")
    if disk_of(url) is not None:
        has.add("disk")
    can = () if server is None else server.can
    return [name for name, fault in FAULTS.items() if fault.where in has or name in can]
