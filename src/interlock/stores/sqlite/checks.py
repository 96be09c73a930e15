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
from interlock.stores.sqlite.line import Execute, Rows, Step
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
    kind = file_system(Path(options.path))
    known = kind in LOCAL
    words = f"{options.path} lies on {kind}" + (
        "" if known else ", which others than this machine may reach: be sure"
    )
    checks.append(Check("file system", "ok" if known else "warn", words))
    found = stat.S_IMODE(os.lstat(options.path).st_mode)
    shared = "shared: everybody who may write to it can stop everybody" if found & 0o022 else "of this user alone"
    checks.append(Check("permissions", "ok", f"mode {found:o}, {shared}"))
    health = (yield Ask(server, Step(_health)))[0][0]
    checks.append(Check("contents", "ok" if health == "ok" else "fail", f"quick_check says: {health}"))
    times = []
    for _ in range(ROUNDS):
        sent = time.perf_counter()
        yield Ask(server, Step(_write))
        times.append(time.perf_counter() - sent)
    words = f"synchronous={options.synchronous}: a commit takes {min(times) * 1e6:.0f} us"
    if options.synchronous == "off":
        words += "; a power cut may damage the file: remove it then"
    checks.append(Check("durability", "warn" if options.synchronous == "off" else "ok", words))
    return checks


def _health(execute: Execute) -> Rows:
    rows: Rows = execute("PRAGMA quick_check(1)").fetchall()
    return rows


def _write(execute: Execute) -> Rows:
    execute("UPDATE claims SET fence = fence + 1 WHERE key = x'' AND number = 0")
    return []
