"""Private servers of etcd, for tests and benchmarks: one, or a cluster of three."""

import json
import socket
import urllib.request
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.servers.home import Closing, Home, Port, eventually, program
from tests.servers.server import Server

SHORT = {"heartbeat-interval": "20", "election-timeout": "200"}
"""Milliseconds; with them the shortest lease is one second, and an election takes less than half a second."""


def etcd_program() -> Path:
    """Return the path of the server's program.

    Raises:
        Missing: it is not installed; the message says how to get it.
    """
    return program("etcd", "apt-get install etcd-server")


def coded(text: str) -> str:
    """Return a text in Base64, for the JSON gateway."""
    return b64encode(text.encode()).decode()


class EtcdServer(Server):
    """A private etcd on a free port of 127.0.0.1; use it as a context manager.

    Args:
        config: options of the program, by their names without leading dashes.
        tls: True for TLS only, with client certificates.
        user, password: the superuser; if given, clients must log in.
        cluster: the peer ports of all members, by their client ports; None for a single server.
        port, home: as for `Server`.

    Attributes:
        tls: the certificates, if it speaks TLS.
    """

    def __init__(
        self,
        *,
        config: Mapping[str, str] | None = None,
        tls: bool = False,
        password: str | None = None,
        cluster: Mapping[int, int] | None = None,
        port: int | None = None,
        home: Home | None = None,
    ) -> None:
        self._program = etcd_program()
        self._config = SHORT | dict(config or {})
        self.password: str | None = None
        self._cluster = dict(cluster or {})
        self._peer = Port(None) if not cluster else None
        super().__init__("etcd", port, home, tls)
        if password is not None:
            self._ask_for(password)

    def _prepare(self) -> None:
        if self._peer is not None:
            self._cluster = {self.port: self._peer.number}

    def _command(self) -> Sequence[str | Path]:
        peer = f"http://{self.host}:{self._cluster[self.port]}"
        members = ",".join(f"m{port}=http://{self.host}:{there}" for port, there in self._cluster.items())
        words = {
            "name": f"m{self.port}", "data-dir": str(self.folder / "data"), "logger": "zap", "log-level": "warn",
            "listen-client-urls": self._where, "advertise-client-urls": self._where, "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer, "initial-cluster": members,
        } | self._config  # fmt: skip
        if self.tls is not None:
            words |= {
                "cert-file": str(self.tls.certificate), "key-file": str(self.tls.key),
                "trusted-ca-file": str(self.tls.authority), "client-cert-auth": "true",
            }  # fmt: skip
        return [self._program, *(f"--{name}={value}" for name, value in words.items())]

    @property
    def _where(self) -> str:
        return f"{'http' if self.tls is None else 'https'}://{self.host}:{self.port}"

    def _answers(self) -> bool:
        if self._peer is None:
            return True  # a member answers only when the majority has started
        if self.tls is not None:
            with socket.create_connection((self.host, self.port), 1):
                return True
        return "member_id" in self.ask("maintenance/status")["header"]

    @property
    def url(self) -> str:
        """The URL for clients: `etcd://127.0.0.1:port`, or `etcds://…` with authority and certificate."""
        login = "" if self.password is None else f"root:{self.password}@"
        if self.tls is None:
            return f"etcd://{login}{self.host}:{self.port}"
        files = f"ssl_ca={self.tls.authority}&ssl_cert={self.tls.certificate}&ssl_key={self.tls.key}"
        return f"etcds://{login}{self.host}:{self.port}?{files}"

    def ask(self, path: str, timeout: float = 10.0, **body: Any) -> Any:
        """Send a request over the JSON gateway; return the reply.

        Raises:
            OSError: the server can't be reached, or refuses.
        """
        request = urllib.request.Request(f"{self._where}/v3/{path}", json.dumps(body).encode())
        if self.password is not None and path != "auth/authenticate":
            request.add_header(
                "Authorization", self.ask("auth/authenticate", name="root", password=self.password)["token"]
            )
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return json.loads(answer.read())

    def _ask_for(self, password: str) -> None:
        self.ask("auth/user/add", name="root", password=password)
        self.ask("auth/role/add", name="root")
        self.ask("auth/user/grant", user="root", role="root")
        self.ask("auth/enable")
        self.password = password

    def close(self) -> None:
        """As `Server.close`."""
        super().close()
        if self._peer is not None:
            self._peer.close()


class EtcdCluster(Closing):
    """An etcd cluster of three members; use it as a context manager.

    Args:
        config: as for `EtcdServer`, for each member.

    Attributes:
        members: the servers.
    """

    def __init__(self, config: Mapping[str, str] | None = None, size: int = 3) -> None:
        self._home = Home("etcd")
        self._ports = [Port(None) for _ in range(2 * size)]
        numbers = [port.number for port in self._ports]
        for kept in self._ports[:size]:
            kept.close()
        cluster = dict(zip(numbers[:size], numbers[size:], strict=True))
        self.members: list[EtcdServer] = []
        try:
            for port in cluster:
                self.members.append(EtcdServer(config=config, cluster=cluster, port=port, home=self._home))
            self.until_there()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """The URL for clients."""
        return "etcd://" + ",".join(f"{member.host}:{member.port}" for member in self.members)

    def leader(self) -> EtcdServer:
        """Return the member that leads.

        Raises:
            OSError: there is no leader.
        """
        for member in self.members:
            try:
                status = member.ask("maintenance/status", timeout=1.0)
            except OSError:
                continue
            if status.get("leader", "0") == status["header"]["member_id"]:
                return member
        raise OSError("no member leads")

    def until_there(self) -> None:
        """Wait until the majority runs and answers."""

        def answers() -> bool:
            return bool(self.leader().ask("kv/range", timeout=2.0, key=coded("x")))

        eventually(answers, lambda: None, "the cluster of etcd")

    def close(self) -> None:
        """End it; safe to repeat."""
        for member in self.members:
            member.close()
        for port in self._ports:
            port.close()
        self._home.close()
