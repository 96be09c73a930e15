"""Looking for a reply before sleeping: what it may cost where the server is far away."""

from interlock._redis.connection import MOST_MISSES, PAUSE, Looking


def looks(looking: Looking, commands: int) -> int:
    """Return how many of so many commands looked, all of them in vain."""
    count = 0
    for _ in range(commands):
        if looking.pays():
            looking.missed()
            count += 1
    return count


def test_a_server_that_is_far_away_is_looked_for_once_in_hundreds_of_commands() -> None:
    looking = Looking()
    looking.seconds = 1.0  # also on a machine with one processor
    looks(looking, MOST_MISSES)
    assert looks(looking, 10 * (PAUSE + 1)) <= 10
    looking.found()  # as soon as it is near, each command looks
    assert looks(looking, MOST_MISSES) == MOST_MISSES
