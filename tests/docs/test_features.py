"""The table of features in the contract agrees with the stores' `features`."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from interlock.api.connect import open_store
from interlock.core.queue import Feature
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "reference" / "contract.md"
FEATURES = get_args(Feature)
REST = {
    "memory": "x",
    "file": "/{folder}/locks",
    "sqlite": "//{folder}/locks.db",
    "share": "/{folder}",
    "dynamodb": "table?endpoint=http://127.0.0.1:1",
}  # of the URLs; others name a server
OF_DJANGO = """
import django
django.setup()
from interlock.django import databases, store
print(*getattr(databases, {kind!r}, getattr(store, {kind!r}, None))("default").features)
"""


def rows() -> Iterator[tuple[str, set[str]]]:
    """Yield the stores of the table, each scheme once, and the features listed there."""
    _, _, table = PAGE.read_text().partition("\n## Features\n")
    lines = [line.split("|")[1:-1] for line in table.partition("\n## ")[0].splitlines() if line.startswith("|")]
    head, _, *body = [[cell.strip().strip("`") for cell in line] for line in lines]
    assert tuple(head[1:]) == FEATURES
    for line in body:
        assert set(line[1:]) <= {"yes", "no"}
        has = {name for name, said in zip(head[1:], line[1:], strict=True) if said == "yes"}
        for scheme in re.findall(r"([\w+]+)://", line[0]) or ["orm" if "orm:" in line[0] else "django"]:
            yield scheme, has


@pytest.mark.parametrize(("scheme", "said"), [pytest.param(*row, id=row[0]) for row in rows()])
def test_the_table_says_what_a_store_has(scheme: str, said: set[str], tmp_path: Path) -> None:
    if scheme in ("django", "orm"):
        assert said == features_of_django("DatabaseStore" if scheme == "django" else "OrmStore")
        return
    rest = REST.get(scheme, "me@127.0.0.1:1/1").format(folder=str(tmp_path).lstrip("/"))
    store = open_store(f"{scheme}://{rest}")  # which connects to no server yet
    assert said == store.features


def features_of_django(kind: str) -> set[str]:
    """Return the features of Django's store, from a process with settings."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.django.settings",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-c", OF_DJANGO.format(kind=kind)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())
