"""doctor: is this file fit to keep locks?"""

import os
import sqlite3
import stat
import time
from pathlib import Path
from typing import Any

from interlock.core.claims import Check
from interlock.core.effects import Ask, Op
from interlock.core.errors import LockError
from interlock.stores.files.machine import LOCAL, file_system
from interlock.stores.sqlite.line import Clock, Execute, Rows, SqliteStep
from interlock.stores.sqlite.options import Options

ROUNDS = 5


def examine(server: Any, options: Options) -> Op[list[Check]]:
    """Look at the version, the file, its place, and how long a commit takes."""
    try:
        return (yield from _examine(server, options))
    except LockError as error:
        return [Check("file", "fail", str(error))]


def _examine(server: Any, options: Options) -> Op[list[Check]]:
    checks = [Check("version", "ok", f"SQLite {sqlite3.sqlite_version}")]
    kind = file_system(Path(options.file))
    known = kind in LOCAL
    words = f"{options.file} lies on {kind}" + (
        "" if known else ", which others than this machine may reach: be sure"
    )
    checks.append(Check("file system", "ok" if known else "warn", words))
    found = stat.S_IMODE(os.lstat(options.file).st_mode)
    shared = "shared: everybody who may write to it can stop everybody" if found & 0o022 else "of this user alone"
    checks.append(Check("permissions", "ok", f"mode {found:o}, {shared}"))
    health = (yield Ask(server, SqliteStep(_health)))[0][0]
    checks.append(Check("contents", "ok" if health == "ok" else "fail", f"quick_check says: {health}"))
    times = []
    for _ in range(ROUNDS):
        sent = time.perf_counter()
        yield Ask(server, SqliteStep(_write))
        times.append(time.perf_counter() - sent)
    checks.append(Check("commit", "ok", f"takes {min(times) * 1e6:.0f} us"))
    return checks


def _health(execute: Execute, clock: Clock) -> Rows:
    rows: Rows = execute("PRAGMA quick_check(1)").fetchall()
    return rows


def _write(execute: Execute, clock: Clock) -> Rows:
    execute("UPDATE machine SET ahead = ahead + 1")
    execute("UPDATE machine SET ahead = ahead - 1")
    return []
