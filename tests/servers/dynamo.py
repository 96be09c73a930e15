"""A private server that speaks the protocol of DynamoDB: dynalite."""

import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import botocore.session  # type: ignore[import-untyped]

import interlock
from tests.servers.bucket import KEY, SECRET
from tests.servers.home import program
from tests.servers.server import Server

GUARD = "process.on('uncaughtException', error => { if (error.code !== 'ECONNRESET') throw error })"
"""Dynalite 4.0 ends when a client is killed in the middle of a request; with this module of node it continues."""


def dynalite_program() -> Path:
    """Return the path of dynalite.

    Raises:
        Missing: it is not installed; the message says how to get it.
    """
    ours = Path(sys.prefix) / "dynalite" / "node_modules" / ".bin"  # ./dev installs it there
    return program("dynalite", "npm install -g dynalite", str(ours))


class DynaliteServer(Server):
    """A private dynalite, which keeps its tables over a restart; use it as a context manager.

    Args:
        largest: the size of the largest item in KB; 400 is that of DynamoDB.
    """

    def __init__(self, largest: int = 400) -> None:
        self._program = dynalite_program()
        self._largest = largest
        super().__init__("dynalite", None, None)

    def _prepare(self) -> None:
        (self.folder / "guard.js").write_text(GUARD)

    def _command(self) -> Sequence[str | Path]:
        return [
            "node", "--require", self.folder / "guard.js", self._program, "--host", self.host,
            "--port", str(self.port), "--path", self.folder / "data", "--createTableMs", "0",
            "--maxItemSizeKb", str(self._largest),
        ]  # fmt: skip

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"http://{self.host}:{self.port}", timeout=10).close()
        except urllib.error.HTTPError as error:
            error.close()
        return True

    def create(self, table: str) -> None:
        """Create a table for locks."""
        with interlock.connect(self.at(table)) as locks:
            locks.claims("no lock")

    def delete(self, table: str, key: str) -> None:
        """Delete an item."""
        client = botocore.session.Session().create_client(
            "dynamodb", endpoint_url=f"http://{self.host}:{self.port}", region_name="us-east-1",
            aws_access_key_id=KEY, aws_secret_access_key=SECRET,
        )  # fmt: skip
        client.delete_item(TableName=table, Key={"k": {"S": key}})
        client.close()

    def at(self, table: str) -> str:
        """Return the URL of a table for clients."""
        return f"dynamodb://{KEY}:{SECRET}@{table}?endpoint=http://{self.host}:{self.port}"
