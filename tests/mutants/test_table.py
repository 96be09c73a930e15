"""The table of errors of `./dev mutants` fits the code."""

from tests.mutants.mutants_run import misfits
from tests.mutants.mutants_table import MUTANTS


def test_every_error_finds_its_place_exactly_once() -> None:
    assert misfits() == []


def test_every_error_changes_something_and_has_a_name_of_its_own() -> None:
    assert all(change.old != change.new for mutant in MUTANTS for change in mutant.changes)
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
