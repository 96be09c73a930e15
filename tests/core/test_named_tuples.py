"""Hot paths make named tuples by `tuple.__new__`: each site gives every field of its class."""

import pytest

from tests.support.budget import SRC
from tests.support.tuple_sites import misfits, sites_of

CLASSES = """
class Origin(NamedTuple):
    token: str
    pid: int
class Place(NamedTuple):
    id: str
    token: str
    pid: int = 0
"""


def test_each_site_gives_all_fields_of_its_class() -> None:
    sites = {*sites_of({str(file.relative_to(SRC)): file.read_text() for file in SRC.rglob("*.py")})}
    assert misfits(sites) == []
    assert len(sites) >= 8


@pytest.mark.parametrize(
    ("call", "given"),
    [
        ("unchecked(Place, (1, 2, 3))", None),
        ("unchecked(Place, (1, *origin))", None),
        ("unchecked(Place, (1, 2))", 2),
        ("unchecked(Place, (1, 2, *origin))", 4),
    ],
)
def test_a_site_with_a_wrong_number_of_fields_is_named(call: str, given: int | None) -> None:
    found = misfits(sites_of({"module.py": f"{CLASSES}\ndef make(origin: Origin):\n    return {call}\n"}))
    assert found == ([] if given is None else [f"module.py:11: Place has 3 fields (id, token, pid), not {given}"])


def test_a_site_whose_fields_can_not_be_counted_is_refused() -> None:
    with pytest.raises(ValueError, match=r"module.py:11: write the fields as a tuple"):
        [*sites_of({"module.py": f"{CLASSES}\ndef make(fields: list[str]):\n    return unchecked(Place, fields)\n"})]
