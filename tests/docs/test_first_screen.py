"""The first screens of README.md and of the site run when they are pasted, in a Python that has nothing else."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import interlock
from interlock.testing.waiting import eventually
from tests.docs.pages import ROOT, blocks_of
from tests.servers import RedisServer, need
from tests.support.cli_processes import Process

SCREENS = ("README.md", "docs/index.md")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a new user, whose default store is in the folder of the test."""
    url = (tmp_path / "locks").as_uri()
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src"), "INTERLOCK_URL": url}


def start(program: str, environment: dict[str, str]) -> Process:
    """Start a program as it is on the page; -S leaves all installed packages out."""
    words = [sys.executable, "-S", "-c", program]
    return Process(words, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def rows_of(output: str) -> list[dict[str, str]]:
    """Return the rows of `interlock ls`, without what differs from run to run."""
    head, _, *rows = [line for line in output[output.index(" Lock ") :].splitlines() if line.strip()]
    starts = [match.start() for match in re.finditer(r"\S+(?: \S+)*", head)]
    columns = [slice(*ends) for ends in zip(starts, [*starts[1:], None], strict=True)]
    varying = re.compile(r"just now|\d+ s( ago)?|\d+@.*")
    return [
        {
            head[column].strip(): "*" if varying.fullmatch(row[column].strip()) else row[column].strip()
            for column in columns
        }
        for row in rows
    ]


@pytest.mark.parametrize("screen", SCREENS)
def test_the_second_program_waits_and_ls_shows_what_the_page_shows(
    screen: str, environment: dict[str, str], tmp_path: Path
) -> None:
    program = next(block.text for block in blocks_of(ROOT / screen) if block.language == "python")
    (shown,) = [block.text for block in blocks_of(ROOT / screen) if block.text.startswith("$ interlock ls\n")]
    ls = [Path(sys.executable).parent / "interlock", "ls"]
    with start(program, environment) as first, interlock.connect(environment["INTERLOCK_URL"]) as locks:
        assert first.stdout is not None
        assert first.stdout.read(5) == "Held."
        with start(program, environment) as second:
            eventually(lambda: len(locks.claims("book:1")) == 2)
            listed = subprocess.run(ls, env=environment, capture_output=True, text=True, check=True).stdout
            (real,), (row,) = rows_of(listed), rows_of(shown)
            assert row == {name: real[name] for name in row}
            first.say("")
            assert second.stdout is not None
            assert second.stdout.read(5) == "Held."
            second.say("")
    assert (first.returncode, second.returncode) == (0, 0)


@pytest.mark.parametrize("screen", SCREENS)
def test_the_asyncio_form_is_a_whole_program(screen: str, environment: dict[str, str]) -> None:
    (program,) = [block.text for block in blocks_of(ROOT / screen) if "asyncio.run(" in block.text]
    assert start(program, environment).ended() == (0, "one task at a time\n", None)


def test_the_table_of_extras_has_each_extra() -> None:
    rows = (ROOT / "README.md").read_text().partition("| extra | installs |")[2].partition("\n\n")[0].splitlines()[2:]
    named = {name for row in rows for name in re.findall("`(\\w+)`", row.split("|")[1])}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert named == set(project["optional-dependencies"])


def test_redis_needs_no_package(environment: dict[str, str]) -> None:
    need("valkey")
    with RedisServer() as server:
        program = f"import interlock\nwith interlock.connect({server.url!r}) as locks, locks.lock('a'): print('held')"
        assert start(program, environment).ended() == (0, "held\n", None)
