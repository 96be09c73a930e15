"""What the pending protocol answers in a moment that no process can be timed for."""

from typing import Any

import pytest

from interlock.core.claims import SEPARATOR, Claim, LockSpec
from interlock.core.pending import Pending
from tests.support.register import MemoryRegister

SPEC = LockSpec(f"{SEPARATOR}name", ttl=30.0)
SOON = 0.05  # seconds


@pytest.mark.parametrize("wait", [True, False], ids=["waits", "tries"])
def test_a_neighbour_that_is_about_to_give_way_is_looked_at_again_soon(wait: bool) -> None:
    register = MemoryRegister(folds=False)
    step = Pending(register).enter(Claim("me", SPEC, "a test"), None, wait, False)
    request: Any = next(step)
    answer = request.function(*request.args)  # it is in line, and has not looked yet
    register._create(Claim("neighbour", SPEC, "a test"), None)  # it will have to give way, and does not know
    with pytest.raises(StopIteration) as end:
        while True:
            request = step.send(answer)
            answer = request.function(*request.args)
    result = end.value.value
    assert (result.state, result.look_again <= SOON) == ("pending", True)  # no refusal: it may be free in a moment
