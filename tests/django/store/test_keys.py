"""One row has one name, however its key is written."""

from typing import Any

import pytest
from django.db import connections
from store.shelf import models as shelf
from store.shelf.models import Place, Shelfmark
from store.test_occupy import is_taken

from interlock import InvalidArgument
from interlock.django import occupy
from interlock.django.testing import assert_held

SPELLINGS = {"sqlite": "qa 1", "mysql": "qa 1", "postgresql": "QA 1    "}
"""What is equal to QA 1, to each database."""


@pytest.fixture
def spelling() -> str:
    Shelfmark.objects.create(code="QA 1")
    return SPELLINGS[connections["default"].vendor]


def test_a_text_that_is_equal_to_the_database_is_the_same_row(spelling: str) -> None:
    with occupy(Shelfmark, pk="QA 1") as mark:
        assert is_taken(Shelfmark, spelling)
        assert not is_taken(Shelfmark, Shelfmark.objects.create(code="QA 2").pk)
        assert_held(Shelfmark(code=spelling))
        assert mark.count == 0


def test_another_spelling_of_a_key_is_the_same_row(spelling: str) -> None:
    mark = Shelfmark(code=spelling)
    mark._state.adding = False
    with occupy(mark):
        assert is_taken(Shelfmark, "QA 1")


def test_a_key_that_is_another_rows_is_compared_likewise(spelling: str) -> None:
    Place.objects.create(pk="QA 1")
    with occupy(Place, pk=spelling):
        assert is_taken(Place, "QA 1")
        assert not is_taken(Shelfmark, "QA 1")


if hasattr(shelf, "Loan"):

    @pytest.mark.parametrize("pk", [("1", "2"), [1, 2], (1, 2), '["1", "2"]'])
    def test_a_composite_key_is_the_same_in_any_form(pk: Any) -> None:
        loan = shelf.Loan.objects.create(reader=1, item=2)
        with occupy(loan):
            assert is_taken(shelf.Loan, pk)
        with occupy(shelf.Loan, pk=pk) as found:
            assert found == loan
            assert_held(loan)

    @pytest.mark.parametrize("pk", [(1,), (1, 2, 3), 5, (1, "two"), (1, None)])
    def test_what_is_no_composite_key_is_said(pk: Any) -> None:
        with pytest.raises(InvalidArgument, match="primary key"):
            occupy(shelf.Loan, pk=pk)
