"""A private PgBouncer before a server of PostgreSQL, for tests."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from socket import create_connection

from tests.servers.accounts import drop_root, give
from tests.servers.home import Home, program
from tests.servers.server import Server

SSL_REQUEST = b"\0\0\0\x08\x04\xd2\x16\x2f"  # the first packet of many clients


def pgbouncer_program() -> Path:
    """Find PgBouncer.

    Raises:
        Missing: it is not installed; the message says how to get it.
    """
    return program("pgbouncer", "apt-get install pgbouncer")


class PgBouncer(Server):
    """A PgBouncer in transaction mode on a free port of 127.0.0.1, without passwords; a context manager.

    As root it runs as the account `postgres`, else `nobody`.

    Args:
        server: the PostgreSQL behind it: its host, port and user are used.
        config: settings of the section `[pgbouncer]`.
        port: the port; None for any free one.

    Attributes:
        host, port, user: for clients, to any database of the server.

    Raises:
        Missing: it is not installed; the message says how to get it.
        NotStarted: it did not start; the message has the last lines of its log.
    """

    def __init__(
        self,
        server: tuple[str, int, str],
        *,
        config: Mapping[str, str] | None = None,
        port: int | None = None,
        home: Home | None = None,
    ) -> None:
        self._program = pgbouncer_program()
        self._as, self._account = drop_root("postgres")
        self._server = server
        self.user = server[2]
        self._config = dict(config or {})
        super().__init__("pgbouncer", port, home)

    @property
    def url(self) -> str:
        """The URL for clients: `postgresql://user@127.0.0.1:port/postgres`."""
        return f"postgresql://{self.user}@{self.host}:{self.port}/postgres"

    def _prepare(self) -> None:
        give([self._home.folder, self.folder], self._account)
        users = self.folder / "users"
        users.write_text(f'"{self.user}" ""\n')
        users.chmod(0o644)
        host, port, _ = self._server
        settings = {
            "listen_addr": self.host, "listen_port": str(self.port), "unix_socket_dir": str(self.folder),
            "auth_type": "trust", "auth_file": str(self.folder / "users"), "pool_mode": "transaction",
            "default_pool_size": "4", "ignore_startup_parameters": "extra_float_digits",
        } | self._config  # fmt: skip
        lines = ["[databases]", f"* = host={host} port={port}", "[pgbouncer]"]
        lines += [f"{name} = {value}" for name, value in settings.items()]
        (self.folder / "pgbouncer.ini").write_text("\n".join(lines) + "\n")
        (self.folder / "pgbouncer.ini").chmod(0o644)

    def _command(self) -> Sequence[str | Path]:
        return [*self._as, self._program, self.folder / "pgbouncer.ini"]

    def _answers(self) -> bool:
        with create_connection((self.host, self.port), 10) as connection:
            connection.sendall(SSL_REQUEST)
            return connection.recv(1) in (b"N", b"S")
