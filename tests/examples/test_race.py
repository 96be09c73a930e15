"""race.py: without protection the site loses updates, and with `occupy` none, on each database."""

import json
import sys

import pytest

from interlock.testing.waiting import eventually
from tests.servers import need
from tests.support.library_site import Example, processes_of

THINKING = "50"
"""ms between reading and writing, long enough that each round without protection loses updates."""


RACES = {
    "rename": "A book is returned and renamed",
    "borrow": "readers borrow one copy",
    "reserve": "readers reserve a book of 3 copies",
}
NOTHING_LOST = {("rename", "guarded"), *((race, "occupy") for race in RACES)}


@pytest.mark.rare
@pytest.mark.parametrize("database", ["postgresql", "mariadb"])
def test_only_what_is_protected_loses_nothing(example: Example, database: str) -> None:
    need({"postgresql": "postgres", "mariadb": "mariadb"}[database])
    ran = example.run(
        "race.py", "--json", "--rounds", "1", "--thinking", THINKING, "--database", database, timeout=240
    )
    assert ran.returncode == 0, ran.stderr
    results = {(one["race"], one["protection"]): one for one in json.loads(ran.stdout)["results"]}
    assert_lost({key: one["lost"] for key, one in results.items()})
    assert "no real race" not in ran.stderr
    for one in results.values():
        assert set(one["answers"]) <= {"200", "201", "409", "423"}
        assert one["requests"] == 24


def assert_lost(lost: dict[tuple[str, str], int]) -> None:
    """See that nothing was lost where it is protected, and something in each race without protection."""
    assert {key: lost[key] for key in NOTHING_LOST} == dict.fromkeys(NOTHING_LOST, 0)
    assert all(lost[race, "none"] > 0 for race in RACES), lost


def test_a_table_shows_each_race_under_each_protection_on_sqlite(example: Example) -> None:
    ran = example.run("race.py", "--rounds", "1", "--thinking", THINKING, timeout=240)
    assert ran.returncode == 0, ran.stderr
    lost: dict[tuple[str, str], int] = {}
    race = ""
    for line in ran.stdout.splitlines():
        race = next((key for key, title in RACES.items() if title in line), race)
        words = line.split()
        if words[:1] in (["none"], ["guarded"], ["occupy"]):
            lost[race, words[0]] = int(words[1])
    assert len(lost) == 9, ran.stdout
    assert_lost(lost)


def test_a_terminated_race_leaves_no_process_and_no_file(example: Example) -> None:
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
