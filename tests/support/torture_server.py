"""A private server as a run of torture may strike it, behind a proxy."""

import psycopg

from interlock.stores.sql.ddl import ddl
from tests.servers import PostgresServer, RedisServer
from tests.servers.proxy import Proxy

IO = 2.0  # seconds that one request takes at most
NO_DISK = {"appendfsync": "no"}  # a killed server has written what it answered; a busy disk is no fault of this run
CONFIG = {"authentication_timeout": "2s"}  # a kill waits for backends in the middle of it, one minute by default


class TorturedServer:
    """A private server and the network before it; use it as a context manager.

    Args:
        kind: "valkey", "redis" or "postgresql".

    Attributes:
        url: of the store, through the proxy.
        network: the proxy.
        keeps_data: True, since a restart forgets nothing.
    """

    def __init__(self, kind: str) -> None:
        self._server: PostgresServer | RedisServer
        account = database = ""
        if kind == "postgresql":
            self._server = server = PostgresServer(config=CONFIG)
            account, database = f"{server.user}@", f"/{server.database}"
        else:
            self._server = RedisServer("redis" if kind == "redis" else "valkey", persist=True, config=NO_DISK)
        self.network = Proxy(self._server.host, self._server.port)
        self.keeps_data = True
        self.url = f"{kind}://{account}{self.network.host}:{self.network.port}{database}"
        if kind == "postgresql":
            self.url += f"?timeout={IO:g}"
        if kind == "postgresql":
            with psycopg.connect(server.url, autocommit=True) as connection:
                connection.execute(ddl().encode())

    @property
    def wipes(self) -> bool:
        """True if all its data can be deleted while it runs."""
        return isinstance(self._server, RedisServer)

    def pause(self) -> None:
        """As `Server.pause`."""
        self._server.pause()

    def resume(self) -> None:
        """As `Server.resume`."""
        self._server.resume()

    def restart(self) -> None:
        """As `Server.restart`."""
        self._server.restart()

    def wipe(self) -> None:
        """Delete all data."""
        if isinstance(self._server, RedisServer):
            self._server.command("FLUSHALL")

    def __enter__(self) -> "TorturedServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.network.close()
        self._server.close()
