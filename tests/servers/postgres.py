"""A private server of PostgreSQL, for tests and benchmarks."""

import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from tests.servers.accounts import drop_root, give
from tests.servers.home import WAIT_LIMIT, Home, NotStarted, last_lines, place_data, program
from tests.servers.server import Server

DEBIAN = Path("/usr/lib/postgresql")  # the programs are in <version>/bin, not on the PATH

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "max_connections": "200",
    "log_timezone": "UTC",
    "timezone": "UTC",
}


def postgres_programs() -> Path:
    """Return the folder of PostgreSQL's programs: the newest of Debian's packages, else that on the PATH.

    Raises:
        Missing: they are not installed; the message says how to get them.
    """
    versions = sorted(DEBIAN.glob("*/bin/initdb"), key=lambda path: float(re.sub(r"[^\d.]", "", path.parts[-3]) or 0))
    initdb = versions[-1] if versions else program("initdb", "apt-get install postgresql")
    return initdb.resolve().parent


class PostgresServer(Server):
    """A private server of PostgreSQL on a free port of 127.0.0.1, without passwords; a context manager.

    As root it runs as the account `postgres`, else `nobody`. `kill` ends all its processes at once, without a
    checkpoint.

    Args:
        config: settings, as for `postgres -c name=value`.
        port: the port; None for any free one.

    Attributes:
        host, port, user, database: for clients.
        folder: its temporary folder, also for its UNIX socket.

    Raises:
        Missing: it is not installed; the message says how to get it.
        NotStarted: it did not start; the message has the last lines of its log.
    """

    _kills: ClassVar[signal.Signals] = signal.SIGQUIT
    _stops: ClassVar[signal.Signals] = signal.SIGINT

    user = "postgres"
    database = "postgres"

    def __init__(
        self, *, config: Mapping[str, str] | None = None, port: int | None = None, home: Home | None = None
    ) -> None:
        self._programs = postgres_programs()
        self._as, self._account = drop_root("postgres")
        self._config = SETTINGS | dict(config or {})
        super().__init__("postgres", port, home)

    @property
    def url(self) -> str:
        """The URL for clients: `postgresql://user@127.0.0.1:port/database`."""
        return f"postgresql://{self.user}@{self.host}:{self.port}/{self.database}"

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _prepare(self) -> None:
        give([self._home.folder, self.folder], self._account)
        place_data("postgres", self._data, self._make_data)

    def _make_data(self) -> None:
        command: list[str | Path] = [
            *self._as, self._programs / "initdb", "--pgdata", self._data, "--username", self.user, "--auth", "trust",
            "--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions",
            "--wal-segsize=1",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder)
        if done.returncode != 0:
            raise NotStarted(f"initdb failed: {done.stderr}")

    def _command(self) -> Sequence[str | Path]:
        places = {"port": str(self.port), "unix_socket_directories": str(self.folder)}
        settings = [word for name, value in (places | self._config).items() for word in ("-c", f"{name}={value}")]
        return [*self._as, self._programs / "postgres", "-D", self._data, *settings]

    def _answers(self) -> bool:
        # As pg_ctl does: the first line has the pid, the eighth says whether it is ready.
        lines = (self._data / "postmaster.pid").read_text().splitlines()
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"


class PostgresReplica(PostgresServer):
    """A streaming replica of a server, until it is promoted.

    Args:
        primary: the server.
        config: as for `PostgresServer`.
    """

    def __init__(self, primary: PostgresServer, *, config: Mapping[str, str] | None = None) -> None:
        self._primary = primary.url
        # By default the replay sleeps for five seconds when the primary is gone, which delays a promotion.
        super().__init__(config={"wal_retrieve_retry_interval": "100ms", **(config or {})})

    def _prepare(self) -> None:
        give([self._home.folder, self.folder], self._account)
        command: list[str | Path] = [
            *self._as, self._programs / "pg_basebackup", "--pgdata", self._data, "--no-sync",
            "--checkpoint=fast", "--write-recovery-conf", "--dbname", self._primary,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder)
        if done.returncode != 0:
            raise NotStarted(f"pg_basebackup failed: {done.stderr}")

    def promote(self) -> None:
        """Make it a primary, after it has applied everything that it has received; return when it accepts writes.

        Raises:
            NotStarted: it did not become a primary; the message has the last lines of its log.
        """
        # Not `SELECT pg_promote()`: the recovery would wait up to 30 s for the snapshot of that query.
        command: list[str | Path] = [
            *self._as, self._programs / "pg_ctl", "promote", "--pgdata", self._data,
            f"--timeout={WAIT_LIMIT:.0f}",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder)
        if done.returncode != 0:
            raise NotStarted(f"pg_ctl promote failed: {done.stdout}{done.stderr}\n{last_lines(self.log)}")
