"""What a URL or an engine says: which file."""

import hashlib
import os
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote

from interlock.core.claims import said
from interlock.core.errors import InvalidArgument
from interlock.core.options import seconds_in
from interlock.stores.files.failures import failed
from interlock.stores.files.machine import boot_id, is_guest, is_network
from interlock.stores.sql.engines import given_by

BESIDE = ".locks"  # what the file of an engine's locks is called, after the engine's own
_MEMORY = (
    "a database in memory is seen by one connection only: for the threads and tasks of one process write memory://, "
    "else give the locks a file: sqlite:////var/lib/app/locks.db"
)


class Options(NamedTuple):
    """What is known of a file.

    Attributes:
        path: absolute, and without symbolic links.
        file: where the claims lie until the machine is started again: the path, and what stands for this boot.
        io_timeout: seconds to wait for others who write.
        allow: a type of file system that the user vouches for, like "virtiofs".
    """

    path: str
    file: str
    io_timeout: float = 5.0
    allow: str = ""


def options_of(url: SplitResult) -> Options:
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
    return _options(path, found.get("timeout", 5.0), found.get("allow", ""))


def options_beside(engine: Any) -> Options:
    """Return the file of the locks of a program whose own database is another one, beside it.

    Args:
        engine: of SQLAlchemy.  Its database has one place for locks, by whatever symbolic links it is reached.

    Raises:
        InvalidArgument: the database is no file, or it can't be told which one.
    """
    given_by(engine, ())
    path = _checked(_database_of(engine))
    if path.startswith("file:"):
        raise InvalidArgument("the engine's database is a URI: give the locks a URL, sqlite:////var/lib/app/locks.db")
    if not os.path.isabs(path):
        raise InvalidArgument(
            f"the engine's database, {path!r}, may be another file in each working directory: give the engine an "
            f"absolute path, which has four slashes: sqlite:////…"
        )
    return _options(os.path.realpath(path) + BESIDE)


def _database_of(engine: Any) -> str:
    """Return which file its connections open: the engine took the working directory of when it was made.

    That is known to what makes the connections only, which SQLAlchemy has as a closure; a function of the program has
    none of these names.
    """
    creator = engine.pool._creator
    names = getattr(getattr(creator, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, getattr(creator, "__closure__", None) or (), strict=False):
        if name in ("cargs_tup", "cargs") and isinstance(cell.cell_contents[0], str):
            return str(cell.cell_contents[0])
    return str(engine.url.database or "")


def _checked(path: str) -> str:
    if path in ("", ":memory:") or "mode=memory" in path:
        raise InvalidArgument(_MEMORY)
    if "\0" in path:
        raise InvalidArgument("the path of a file must not contain a NUL character")
    return path


def _options(path: str, io_timeout: float = 5.0, allow: str = "") -> Options:
    folder, name = os.path.split(path)
    if not name:
        raise InvalidArgument(f"{path!r} is a folder: name a file in it, {path}locks.db")
    try:
        boot = boot_id()
    except OSError as error:
        raise failed("this boot of the machine can't be told from others", error) from error
    path = _followed(os.path.join(os.path.realpath(folder), name))
    return Options(path, f"{path}-{hashlib.blake2b(boot.encode(), digest_size=6).hexdigest()}", io_timeout, allow)


def _followed(path: str) -> str:
    """Return where a symbolic link leads: programs that name the link have the locks of those that name the file.

    Raises:
        InvalidArgument: it is a stranger's, who could choose where files are made and removed.
    """
    if os.path.islink(path) and os.lstat(path).st_uid not in (0, os.geteuid()):
        raise InvalidArgument(f"{path} is a symbolic link of another user: write the path of the file itself")
    return os.path.realpath(path)
