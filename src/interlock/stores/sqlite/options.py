"""What a URL or an engine says: which file."""

import os
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote

from interlock.core.claims import said
from interlock.core.errors import InvalidArgument
from interlock.core.options import seconds_in
from interlock.core.redaction import described
from interlock.stores.files.machine import is_guest, is_network

BESIDE = ".locks"  # what the file of an engine's locks is called, after the engine's own
_MEMORY = (
    "a database in memory is seen by one connection only: for the threads and tasks of one process write memory://, "
    "else give the locks a file: sqlite:////var/lib/app/locks.db"
)


class SqliteOptions(NamedTuple):
    """What is known of a file.

    Attributes:
        path: absolute, and without symbolic links.
        timeout: seconds for which others may keep the file busy until that is an error.
        allow: a type of file system that the user vouches for, like "virtiofs".
    """

    path: str
    timeout: float = 5.0
    allow: str = ""


def options_of(url: SplitResult) -> SqliteOptions:
    """Read a URL.

    Raises:
        InvalidArgument: there is no absolute path, or an option makes no sense.
    """
    found: dict[str, Any] = {}
    for name, value in parse_qsl(url.query, keep_blank_values=True):
        if name in found:
            raise InvalidArgument(f"sqlite:// has the option {name!r} twice")
        if name == "timeout":
            found[name] = seconds_in(name, value)
        elif name == "allow" and is_guest(value) and not is_network(value):
            found[name] = value
        elif (name, value) == ("mode", "memory"):
            raise InvalidArgument(_MEMORY)
        else:
            raise InvalidArgument(
                f"sqlite:// has no option {said(name + '=' + value)}; there are timeout=SECONDS, "
                f"and allow=TYPE for a file system like virtiofs that nobody else uses"
            )
    if url.netloc or url.fragment:
        raise InvalidArgument("sqlite:// names a file of this machine: sqlite:////var/lib/app/locks.db")
    path = _checked(unquote(url.path, errors="surrogateescape").removeprefix("/"))
    if not os.path.isabs(path):
        raise InvalidArgument(
            f"{path!r} would be another file in each working directory: an absolute path has four slashes, "
            f"sqlite:////{path} or sqlite:///{os.path.abspath(path)}"
        )
    return SqliteOptions(_followed(path), **found)


def options_beside(engine: Any) -> SqliteOptions:
    """Return the file of the locks of a program whose own database is another one, beside it.

    Args:
        engine: of SQLAlchemy.  Its database has one place for locks, by whatever symbolic links it is reached.

    Raises:
        InvalidArgument: the database is no file, or it can't be told which one.
    """
    if engine.dialect.driver not in ("pysqlite", "aiosqlite"):
        raise InvalidArgument(f"locks need an engine of sqlite3 or aiosqlite, not {described(engine)}")
    path = _checked(engine.url.database or "")
    if not os.path.isabs(path):
        raise InvalidArgument(
            f"the engine's database, {path!r}, may be another file in each working directory: give the engine an "
            f"absolute path, which has four slashes, or give the locks a URL: sqlite:////var/lib/app/locks.db"
        )
    return SqliteOptions(os.path.realpath(path) + BESIDE)


def _checked(path: str) -> str:
    if path in ("", ":memory:") or "mode=memory" in path:
        raise InvalidArgument(_MEMORY)
    if "\0" in path or path.endswith("/"):
        raise InvalidArgument(f"{path!r} is a folder, or no path: name a file, like /var/lib/app/locks.db")
    return path


def _followed(path: str) -> str:
    """Return where a symbolic link leads: programs that name the link have the locks of those that name the file.

    Raises:
        InvalidArgument: it is a stranger's, who could choose where files are made and removed.
    """
    folder, name = os.path.split(path)
    path = os.path.join(os.path.realpath(folder), name)
    if os.path.islink(path) and os.lstat(path).st_uid not in (0, os.geteuid()):
        raise InvalidArgument(f"{path} is a symbolic link of another user: write the path of the file itself")
    return os.path.realpath(path)
