"""Steps of a line file that no process can be timed for: what the plan decides about the dead."""

from interlock.stores.files.plan import Image, PlannedStep, Write
from interlock.stores.files.record import Slot

NOW, LATER = 100.0, 130.0
HOLDER, DEAD, MINE = "1-a", "2-b", "3-c"


def slot(row: int, state: str, number: int, id: str, alive: str, until: float = LATER) -> Slot:
    """Return a claim as it stands in a file."""
    return Slot(row, state, number, until, id, 1, 1, alive, 1, b"")  # type: ignore[arg-type]


def step_with(*pending: Slot) -> PlannedStep:
    """Return a step on a line with a live holder and these waiters."""
    using = [slot(0, "using", 7, "held", HOLDER)]
    image = Image(using, list(pending), [], [], top=7, waiting=bool(pending))
    return PlannedStep(image, NOW, lambda token: token != DEAD, lambda top: top + 1)


def test_a_newcomer_clears_away_the_dead_before_it_and_watches_who_lives() -> None:
    step = step_with(
        slot(0, "pending", 1, "first", MINE),
        slot(1, "pending", 2, "died", DEAD),
        slot(2, "pending", 3, "ended", MINE, until=NOW),
    )
    result = step.enter(slot(-1, "pending", 0, "me", MINE), wait=True, again=False, subscribed=True)
    assert result.state == "pending"
    assert [each.id for each in step.pending] == ["first", "me"]
    assert [write for write in step.before if isinstance(write, Write) and write.slot is None] == [
        Write("pending", 2, None),
        Write("pending", 1, None),
    ]
    assert step.watch("me") == [MINE]


def test_who_looks_again_clears_away_the_dead_before_it_too() -> None:
    step = step_with(
        slot(0, "pending", 1, "first", "4-d"), slot(1, "pending", 2, "died", DEAD), slot(2, "pending", 3, "me", MINE)
    )
    step.enter(slot(-1, "pending", 0, "me", MINE), wait=True, again=True, subscribed=True)
    assert [each.id for each in step.pending] == ["first", "me"]
    assert step.watch("me") == ["4-d"]
