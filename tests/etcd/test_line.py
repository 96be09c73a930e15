"""The line of etcd gives the same answers and promotions as `core.line` on random steps, in both colours."""

import pytest

from interlock.testing.line_property import Twins
from tests.support.queues import queues

OVER = 2.3  # seconds after which the shortest lease has ended


@pytest.mark.parametrize("seed", range(6))
def test_random_steps_give_the_same_answers_and_promotions_as_memory(url: str, colour: str, seed: int) -> None:
    with queues(url, colour) as both:
        Twins(both, seed, OVER).run(60)
