"""race.py: without protection the site loses updates, and with `occupy` none, on real servers."""

import json
import sys

import pytest

from interlock.testing.waiting import eventually
from tests.servers import need
from tests.support.library_site import Example, processes_of

ROUNDS = "2"
THINKING = "50"
"""ms between reading and writing, long enough that each round without protection loses updates."""


@pytest.mark.parametrize("database", ["sqlite", "postgresql", "mariadb"])
def test_only_what_is_protected_loses_nothing(example: Example, database: str) -> None:
    if database != "sqlite":
        need({"postgresql": "postgres", "mariadb": "mariadb"}[database])
    ran = example.run(
        "race.py", "--json", "--rounds", ROUNDS, "--thinking", THINKING, "--database", database, timeout=240
    )
    assert ran.returncode == 0, ran.stderr
    results = {(one["race"], one["protection"]): one for one in json.loads(ran.stdout)["results"]}
    lost = {key: one["lost"] for key, one in results.items()}
    assert lost["rename", "occupy"] == lost["borrow", "occupy"] == lost["reserve", "occupy"] == 0
    assert lost["rename", "guarded"] == 0
    assert lost["rename", "none"] > 0
    assert lost["borrow", "none"] > 0
    assert lost["reserve", "none"] > 0
    assert "no real race" not in ran.stderr
    for one in results.values():
        assert set(one["answers"]) <= {"200", "201", "409", "423"}
        assert one["requests"] == 24 * int(ROUNDS)


def test_a_table_shows_each_race_under_each_protection(example: Example) -> None:
    ran = example.run("race.py", "--rounds", "1", "--workers", "1", "--threads", "2", timeout=240)
    assert ran.returncode == 0, ran.stderr
    for words in ("returned and renamed", "borrow one copy", "reserve a book of 3 copies"):
        assert words in ran.stdout
    for protection in ("none", "guarded", "occupy"):
        assert ran.stdout.count(protection) == 3


def test_a_race_that_is_told_to_end_leaves_no_process_and_no_file(example: Example) -> None:
    with example.start(sys.executable, "race.py", TMPDIR=str(example.data)) as process:
        assert "none" in process.stderr.readline()
        process.terminate()
        assert process.wait(30) == 128 + 15
        eventually(lambda: not processes_of(process.pid))
    assert not list(example.data.iterdir())


@pytest.mark.parametrize("words", [["--rounds", "0"], ["--database", "paper"], ["--thinking", "-1"]])
def test_what_makes_no_sense_is_refused(example: Example, words: list[str]) -> None:
    ran = example.run("race.py", *words, timeout=60)
    assert ran.returncode == 2
    assert words[0] in ran.stderr
