"""`interlock run x -- true`, a new process each time, beside `true` alone and flock(1)."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.contestants import needs
from bench.model import Beside, Contestant, Metric, Place, Raw, Scenario, Seat, Target

LEAST = 3  # runs of a measurement, however short its time

ENTRY_POINT = "import sys; from interlock.cli import main; sys.exit(main())"

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""A cache of bytecode, as for an installed package, which is not compiled at each start."""

Argv = list[str]


def true(place: Place) -> Argv:
    """The command alone."""
    del place
    return ["true"]


def flock(place: Place) -> Argv:
    """flock(1) around it."""
    return ["flock", str(place.folder / place.name), "true"]


def python(place: Place) -> Argv:
    """An interpreter that does nothing: the least cost of any Python command."""
    del place
    return [sys.executable, "-c", "pass"]


def interlock(place: Place) -> Argv:
    """interlock run around it: the installed command, or its module if only the sources are there."""
    script = Path(sys.executable).with_name("interlock")
    command = [str(script)] if script.exists() else [sys.executable, "-c", ENTRY_POINT]
    return [*command, "run", "--store", f"file://{place.folder}", place.name, "--", "true"]


def work(contestant: Contestant[Argv], seat: Seat) -> Raw:
    """Run it repeatedly; the median counts."""
    argv = contestant.make(seat.place)
    path = shutil.which(argv[0])
    if path is None:
        raise FileNotFoundError(argv[0])
    runs: list[float] = []
    until = time.monotonic() + seat.seconds
    while len(runs) < LEAST or time.monotonic() < until:
        start = time.perf_counter()
        status = os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn(path, argv, ENVIRONMENT), 0)[1])
        runs.append((time.perf_counter() - start) * 1e3)
        if status:
            raise RuntimeError(f"{' '.join(argv)} ended with {status}")
    return {"ms": median(runs), "runs": float(len(runs))}


def fold(raws: Sequence[Raw]) -> Raw:
    """Only one worker measures."""
    (raw,) = raws
    return raw


OURS, ALONE = "interlock run", Beside("true", "minus")
SCENARIO: Scenario[Any] = Scenario(
    key="command",
    title="`interlock run x -- true`, a new process each time",
    groups=frozenset({"cli"}),
    contestants=(
        Contestant(OURS, interlock, needs.interlock_command, "ours", "interlock run --store URL x -- true"),
        Contestant("true", true, needs.program("true"), "limit"),
        Contestant("flock", flock, needs.program("flock"), notes="flock FILE true"),
        Contestant("python -c pass", python, role="limit", notes="starts nothing else"),
    ),
    metrics=(Metric("ms", "ms per run"), Metric("runs", "runs", "-", "sum")),
    work=work,
    fold=fold,
    beside=(ALONE, Beside("flock", "minus")),
    targets=(Target("at most 120 ms more than `true`", OURS, "ms", 120.0, beside=ALONE),),
)
