"""A private site: gunicorn on a free port, over a database in a temporary folder."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent.parent
PASSWORD = "only for races"
WAIT_LIMIT = 10.0
"""Seconds that a site may take to end before it is killed."""


@contextmanager
def place(database: str) -> Iterator[dict[str, str]]:
    """Make an empty database, fill it with the seed data, and yield the environment that leads there.

    Args:
        database: sqlite; or postgresql or mariadb, for which a private server is started.

    Raises:
        RuntimeError: there is no server, or the database can't be filled; the message says why.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="library-race-"))
        wanted = {"LIBRARY_DATABASE": database, "LIBRARY_DATA": folder, "LIBRARY_ADMIN_PASSWORD": PASSWORD}
        if database != "sqlite":
            wanted |= _address(stack, database)
        environment = {**os.environ, **wanted, "DJANGO_SETTINGS_MODULE": "library.settings"}
        set_up(environment)
        yield environment


def _address(stack: ExitStack, database: str) -> dict[str, str]:
    """Start a private server, and return the variables that lead there."""
    sys.path.append(str(HERE.parent.parent))  # the private servers stand beside the tests, not in the package
    from tests.servers import MariaServer, Missing, NotStarted, PostgresServer

    try:
        server = stack.enter_context(PostgresServer() if database == "postgresql" else MariaServer())
    except (Missing, NotStarted) as error:
        raise RuntimeError(str(error)) from error
    found = {"HOST": server.host, "PORT": str(server.port), "USER": server.user, "DATABASE": server.database}
    if database == "postgresql":
        return {**{f"PG{key}": value for key, value in found.items()}, "PGPASSWORD": ""}
    found["TCP_PORT"] = found.pop("PORT")
    return {**{f"MYSQL_{key}": value for key, value in found.items()}, "MYSQL_PWD": ""}


def set_up(environment: Mapping[str, str]) -> None:
    """Make the tables, the books and the user.

    Raises:
        RuntimeError: it failed; the message has what it said.
    """
    command = [sys.executable, "manage.py", "setup"]
    done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"manage.py setup failed:\n{done.stdout}{done.stderr}")


@contextmanager
def serve(environment: Mapping[str, str], **variables: object) -> Iterator[str]:
    """Start the site, and yield its address, such as "127.0.0.1:41507".

    Args:
        environment: as `place` yields it.
        variables: more for it, without LIBRARY_.

    Raises:
        RuntimeError: it did not start; the message has what it said.
    """
    log = Path(environment["LIBRARY_DATA"]) / "gunicorn.log"
    wanted = {f"LIBRARY_{name}": str(value) for name, value in variables.items()}
    with log.open("w") as errors:
        site = subprocess.Popen(
            [sys.executable, "-m", "gunicorn"],
            cwd=HERE,
            env={**environment, **wanted, "LIBRARY_PORT": "0"},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    with site:
        try:
            assert site.stdout is not None
            line = site.stdout.readline()
            if "http://" not in line:
                raise RuntimeError(f"the site did not start:\n{line}{log.read_text()}")
            yield line.split("http://")[1].strip().rstrip("/")
        finally:
            site.terminate()
            try:
                site.wait(WAIT_LIMIT)
            except subprocess.TimeoutExpired:
                site.kill()
    if "Traceback" in log.read_text():
        raise RuntimeError(f"the site failed:\n{log.read_text()}")
