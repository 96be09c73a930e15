"""The start of the command: a whole process, from its start to its end."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.model import Beside, Contestant, Metric, Place, Raw, Scenario, Target, Unavailable
from bench.scenarios import pairs

RUN, LS, BARE = "interlock run -- true", "interlock ls", Beside("python -c pass")
OURS = Path(sys.executable).with_name("interlock")


def program(*words: str) -> Callable[[Place], pairs.Batch]:
    """A command; {folder} stands for the folder of the measurement."""

    def build(place: Place) -> pairs.Batch:
        command = [word.format(folder=place.folder) for word in words]
        environment = {**os.environ, "INTERLOCK_URL": f"file://{place.folder}"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # otherwise each start compiles the modules of a checkout

        def batch(times: int) -> None:
            for _ in range(times):
                subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)

        return batch

    return build


def installed(path: str) -> Callable[[], None]:
    """Require a program."""

    def check() -> None:
        if shutil.which(path) is None:
            raise Unavailable(f"{path} is not installed")

    return check


def fold(raws: Sequence[Raw]) -> Raw:
    """Only one worker measures."""
    (raw,) = raws
    return {"ms": raw["us"] / 1000}


SCENARIO: Scenario[pairs.Batch] = Scenario(
    key="command_start",
    title="The start of a command, one process after the other",
    groups=frozenset({"command"}),
    contestants=(
        Contestant(RUN, program(str(OURS), "run", "bench", "--", "true"), installed(str(OURS)), "ours"),
        Contestant(LS, program(str(OURS), "ls"), installed(str(OURS)), "ours"),
        Contestant(
            "flock(1)", program("flock", "{folder}/bench", "true"), installed("flock"), notes="a program in C"
        ),
        Contestant(BARE.peer, program(sys.executable, "-c", "pass"), role="limit", notes="Python alone"),
    ),
    metrics=(Metric("ms", "ms per start"),),
    work=pairs.work,
    fold=fold,
    beside=(BARE,),
    targets=(
        Target("at most 40 ms", RUN, "ms", 40.0),
        Target("at most 120 ms", LS, "ms", 120.0),
    ),
)
