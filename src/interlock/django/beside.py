"""SQLite: where claims are kept that nobody gave a place.

One transaction at a time writes to a SQLite file, and one that has only read keeps others from committing.  So the
claims are not in the file of the data but beside it, in a folder of the file store.  A database in memory is seen by
one process only, and so are its claims.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from django.conf import settings

from interlock.stores.files.opening import Sharing, make_folder

SUFFIX = "-locks"  # as SQLite's own -journal, -wal and -shm
WRITES = 0o022  # by the group, by all


def is_sqlite(alias: str) -> bool:
    """Tell whether a database is SQLite's."""
    return "sqlite" in str(settings.DATABASES.get(alias, {}).get("ENGINE", ""))


def is_in_memory(alias: str) -> bool:
    """Tell whether a database is SQLite's, and in memory."""
    name = _name(alias)
    return is_sqlite(alias) and (not name or ":memory:" in name or "mode=memory" in name)


def url_beside(alias: str) -> str:
    """Return the URL of the store for the claims of a SQLite database."""
    if is_in_memory(alias):
        return f"memory://interlock-django/{quote(alias, safe='')}"
    return f"file://{quote(str(folder_beside(alias)))}"


def folder_beside(alias: str) -> Path:
    """Return the folder beside the file of a SQLite database, whatever links lead to that."""
    file = _file(alias)
    return file.with_name(file.name + SUFFIX)


def prepare(alias: str) -> None:
    """Make the folder for those who may write to the database; nothing if it is there, or can't be made."""
    if is_in_memory(alias):
        return
    folder = folder_beside(alias)
    try:
        if not folder.is_dir():
            make_folder(folder, *_sharing(_file(alias)))
    except OSError:
        pass  # the store says what is wrong with it


def _sharing(file: Path) -> tuple[int, Sharing]:
    around = os.stat(file.parent)
    try:
        found = os.stat(file)
    except FileNotFoundError:
        found = around
    writes = found.st_mode & around.st_mode & WRITES
    if around.st_mode & stat.S_ISVTX and found is around:
        writes = 0  # like /tmp: everybody may write there, each for themselves
    mode = 0o700 | (0o2070 if writes & 0o020 else 0) | (0o007 if writes & 0o002 else 0)
    return mode, Sharing(mode, found.st_uid, found.st_gid)


def _name(alias: str) -> str:
    database: Mapping[str, Any] = settings.DATABASES[alias]
    return str(database.get("NAME", ""))


def _file(alias: str) -> Path:
    name = _name(alias)
    path = unquote(urlsplit(name).path) if name.startswith("file:") else name
    return Path(os.path.realpath(path))
