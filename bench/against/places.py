"""The environment of each version, and its own part of each server and folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from contextlib import ExitStack
from pathlib import Path

from bench.contestants.sql_server import DURABLE, MARIADB_DURABLE
from tests.servers import MariaServer, PostgresServer, RedisServer

ROOT = Path(__file__).parents[2]
SOURCES = ("src", "docs/interlock.1", "LICENSE", "README.md", "pyproject.toml", "setup.py")
VERSIONS = ("old", "new")


def wheel_of_tree(folder: Path) -> Path:
    """Build the wheel of the working tree: both sides are installed, compiled and imported in the same way.

    It is built from a copy, since files of an earlier build in the tree would get into the wheel.
    """
    copy = folder / "tree"
    for name in SOURCES:
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__"))
        else:
            shutil.copy(ROOT / name, target)
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder / "wheel", copy)
    (wheel,) = (folder / "wheel").glob("*.whl")
    return wheel


def environment(folder: Path, wheel: Path) -> Path:
    """Make an environment with a wheel, and with the client libraries of the present environment.

    Returns:
        The path of its interpreter.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    # Before the other environment is added, in which pip would find the project installed.
    pip("--python", python, "install", "--no-deps", "--no-index", "--no-cache-dir", wheel)
    # A folder in a .pth file comes last on the path, and Python ignores its .pth files, such as the one of this
    # project.
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "clients.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return python


def pip(*words: str | Path) -> None:
    """Run pip without PYTHONPATH, by which it would find the project of this tree installed."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words]
    subprocess.run(command, env=variables, check=True)


def clean() -> dict[str, str]:
    """The environment variables of a worker: without a path to another version, and with a fixed hash seed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "INTERLOCK_"))}
    return kept | {"PYTHONHASHSEED": "0"}


class Places:
    """The URLs of each store: each version has its own folder, or its own database on a server for both.

    The servers have their default durability, and start when the first row needs them.

    Args:
        folder: the folder for files.
        closing: ends the servers.
    """

    def __init__(self, folder: Path, closing: ExitStack) -> None:
        self._folder, self._closing = folder, closing
        self._servers: dict[str, str] = {}

    def url(self, store: str, version: str) -> str:
        """Return the URL of a store for a version.

        Raises:
            Missing: the server is not installed; the message says how to get it.
        """
        if store == "memory":
            return "memory://"
        if store == "files":
            return f"file://{self._folder}/{version}"
        if store == "sqlite":
            return f"sqlite:///{self._folder}/{version}.sqlite3"
        if store == "redis":
            return f"{self._server('redis')}/{VERSIONS.index(version)}"
        server = self._server("mariadb" if store == "mariadb" else "postgresql").partition(":")[2].rpartition("/")[0]
        if store == "advisory":
            return f"postgresql+advisory:{server}/{version}_rows"
        return f"{'mysql' if store == 'mariadb' else store}:{server}/{version}_rows?create=true"

    def _server(self, kind: str) -> str:
        if kind not in self._servers:
            server: RedisServer | PostgresServer | MariaServer
            if kind == "redis":
                server = RedisServer("valkey")
            elif kind == "postgresql":
                server = PostgresServer(config=DURABLE)
            else:
                server = MariaServer(config=MARIADB_DURABLE)
            self._closing.enter_context(server)
            if kind != "redis":
                make_databases(server.url)
            self._servers[kind] = server.url
        return self._servers[kind]


def make_databases(url: str) -> None:
    """Create a database for each version on an SQL server."""
    from sqlalchemy import create_engine, text
    from sqlalchemy.pool import NullPool

    scheme, _, rest = url.partition(":")
    driver = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}[scheme]
    engine = create_engine(f"{driver}:{rest}", poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for version in VERSIONS:
            connection.execute(text(f"CREATE DATABASE {version}_rows"))
