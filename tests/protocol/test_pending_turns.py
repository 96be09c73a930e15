"""The pending protocol's answers in moments too short to time a process for."""

from typing import Any

import pytest

from interlock.core._sync.pending import Pending
from interlock.core.claims import SEPARATOR, Claim, LockSpec
from tests.support.records import MemoryRecords

SPEC = LockSpec(f"{SEPARATOR}name", ttl=30.0)
SOON = 0.05  # seconds


@pytest.mark.parametrize("wait", [True, False], ids=["waits", "tries"])
def test_a_neighbour_that_is_about_to_give_way_is_looked_at_again_soon(wait: bool) -> None:
    records = MemoryRecords()
    listed = records.list

    def list_late(key: str) -> Any:  # it is in line, and has not looked yet
        records.create(Claim("neighbour", SPEC, "a test"))  # it will have to give way, and does not know
        records.list = listed  # type: ignore[method-assign]
        return listed(key)

    records.list = list_late  # type: ignore[method-assign]
    result = Pending(records).enter(Claim("me", SPEC, "a test"), wait, False)
    assert (result.state, result.look_again <= SOON) == ("pending", True)  # no refusal: it may be free in a moment
