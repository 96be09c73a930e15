"""A private server of MariaDB, for tests and benchmarks."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from socket import create_connection
from typing import Any

import pymysql  # type: ignore[import-untyped]
from pymysql.cursors import DictCursor  # type: ignore[import-untyped]

from tests.servers.accounts import drop_root, give
from tests.servers.home import Home, NotStarted, eventually, place_data, program
from tests.servers.server import Server

SETTINGS = {
    "bind-address": "127.0.0.1",
    "skip-name-resolve": "1",
    "skip-log-bin": "1",
    "innodb-flush-log-at-trx-commit": "1",
    "innodb-flush-method": "nosync",
    "innodb-doublewrite": "0",
    "innodb-buffer-pool-size": "16M",
    "innodb-log-file-size": "8M",
    "innodb-log-buffer-size": "2M",
    "innodb-data-file-path": "ibdata1:8M:autoextend",
    "innodb-autoextend-increment": "1",  # MiB, of 64: each new server copies the file
    "aria-pagecache-buffer-size": "8M",
    "key-buffer-size": "1M",
    "performance-schema": "0",
    "max-connections": "200",
    "max-connect-errors": "1000000000",
    "character-set-server": "utf8mb4",
    "collation-server": "utf8mb4_general_ci",
}

REPLICATED = {"log-bin": "log", "log-slave-updates": "1"}
"""Settings of a server that has replicas, and of a replica that may be promoted."""

GREETING = 10  # the version of the protocol, in the first packet of a server that is ready


def mariadb_programs() -> tuple[Path, Path]:
    """Find MariaDB's programs: the one that makes the data, and the server.

    Raises:
        Missing: they are not installed; the message says how to get them.
    """
    how = "apt-get install mariadb-server"
    return program("mariadb-install-db", how), program("mariadbd", how)


class MariaServer(Server):
    """A private server of MariaDB on a free port of 127.0.0.1, without passwords; a context manager.

    As root it runs as the account `mysql`, else `nobody`.

    Args:
        config: settings of `mariadbd`, without the leading dashes.
        tls: True for TLS only.
        port: the port; None for any free one.

    Attributes:
        host, port, user, database: for clients.
        folder: its temporary folder.
        socket: the path of its UNIX socket.
        tls: the certificates, if it speaks TLS.

    Raises:
        Missing: it is not installed; the message says how to get it.
        NotStarted: it did not start; the message has the last lines of its log.
    """

    user = "root"
    database = "interlock"

    def __init__(
        self,
        *,
        config: Mapping[str, str] | None = None,
        tls: bool = False,
        port: int | None = None,
        home: Home | None = None,
    ) -> None:
        self._install, self._mariadbd = mariadb_programs()
        self._as, self._account = drop_root("mysql")
        self._config = SETTINGS | dict(config or {})
        super().__init__("mariadbd", port, home, tls)

    @property
    def url(self) -> str:
        """The URL for clients: `mysql://user@127.0.0.1:port/database`."""
        return f"mysql://{self.user}@{self.host}:{self.port}/{self.database}"

    def ask(self, sql: str) -> Sequence[dict[str, Any]]:
        """Perform a statement on a new connection, and return its rows."""
        with pymysql.connect(
            host=self.host, port=self.port, user=self.user, database=self.database, cursorclass=DictCursor
        ) as connection:
            cursor = connection.cursor()
            cursor.execute(sql)
            found: Sequence[dict[str, Any]] = cursor.fetchall()
            return found

    def _settings(self) -> list[str]:
        places = {
            "datadir": str(self.folder / "data"),
            "socket": self.socket,
            "port": str(self.port),
            "pid-file": str(self.folder / "pid"),
            "server-id": str(self.port),
            "tmpdir": str(self.folder),
        }
        if self.tls is not None:
            places |= {
                "ssl-cert": str(self.tls.certificate),
                "ssl-key": str(self.tls.key),
                "require-secure-transport": "1",
            }
        return [f"--{name}={value}" for name, value in (places | self._config).items()]

    def _prepare(self) -> None:
        self.socket = str(self.folder / "socket")
        key = [] if self.tls is None else [self.tls.key]
        give([self._home.folder, self.folder, *key], self._account)
        (self.folder / "init.sql").write_text(f"CREATE DATABASE IF NOT EXISTS {self.database};\n")
        (self.folder / "init.sql").chmod(0o644)
        place_data(f"mariadb {self._config}", self.folder / "data", self._make_data)

    def _make_data(self) -> None:
        command: list[str | Path] = [
            *self._as, self._install, "--no-defaults", "--auth-root-authentication-method=normal",
            "--skip-test-db", *self._settings(),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder)
        if done.returncode != 0:
            raise NotStarted(f"mariadb-install-db failed: {done.stdout}{done.stderr}")

    def _command(self) -> Sequence[str | Path]:
        init = f"--init-file={self.folder / 'init.sql'}"
        return [*self._as, self._mariadbd, "--no-defaults", *self._settings(), init]

    def _answers(self) -> bool:
        with create_connection((self.host, self.port), 10) as connection, connection.makefile("rb") as reader:
            packet = reader.read(5)
            return len(packet) == 5 and packet[4] == GREETING


class MariaReplica(MariaServer):
    """A replica of a server that is `REPLICATED`, until it is promoted.

    Args:
        primary: the server.
        config: as for `MariaServer`.
    """

    def __init__(self, primary: MariaServer, *, config: Mapping[str, str] | None = None) -> None:
        super().__init__(config=REPLICATED | dict(config or {}))
        place = f"MASTER_HOST = '{primary.host}', MASTER_PORT = {primary.port}, MASTER_USER = '{primary.user}'"
        self.ask(f"CHANGE MASTER TO {place}, MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1")
        self.ask("START SLAVE")
        eventually(lambda: self._state()["Seconds_Behind_Master"] == 0, lambda: None, "a replica that has all")

    def promote(self) -> None:
        """Make it a primary, after it has applied everything that it has received."""
        self.ask("STOP SLAVE IO_THREAD")
        eventually(self._has_done_all, lambda: None, "a replica that has done all")
        self.ask("STOP SLAVE")
        self.ask("RESET SLAVE ALL")

    def _has_done_all(self) -> bool:
        state = self._state()
        # The last transaction may have been received in part: then the positions never meet.
        return str(state["Slave_SQL_Running_State"]).startswith("Slave has read all relay log")

    def _state(self) -> dict[str, Any]:
        state = self.ask("SHOW SLAVE STATUS")[0]
        if state["Last_SQL_Error"]:
            raise NotStarted(state["Last_SQL_Error"])
        return state
