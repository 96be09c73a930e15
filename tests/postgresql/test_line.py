"""The line in PL/pgSQL gives the same answers and promotions as `core.line`, in both colours."""

import pytest

from interlock.testing.line_property import Twins
from tests.support.queues import queues


@pytest.mark.parametrize("seed", range(5))
def test_random_steps_give_the_same_answers_and_promotions_as_memory(url: str, colour: str, seed: int) -> None:
    with queues(url, colour) as both:
        Twins(both, seed).run(100)


def test_leases_longer_than_the_grace_are_committed_first_and_told_afterwards(url: str, colour: str) -> None:
    with queues(f"{url}&grace=0", colour) as both:
        Twins(both, 99).run(100)
