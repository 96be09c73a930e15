"""The original scheme as published: the checker's verdict on each version, for two and for three clients."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from proof import explore
from proof.__main__ import main
from proof.seeds import VERSIONS, Verdict, verdicts
from proof.seeds.report import markdown
from proof.seeds.world import World

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "seeds.md"
CLIENTS = (2, 3)

TWO_HOLDERS = {
    "database: autocommit, using then pending",
    "database: looks at a replica",
    "database: attempt in a READ COMMITTED transaction",
    "database: attempt in a REPEATABLE READ transaction",
    "database: acquire in a READ COMMITTED transaction",
    "database: acquire in a REPEATABLE READ transaction",
    "database: ATOMIC_REQUESTS, READ COMMITTED",
    "database: ATOMIC_REQUESTS, REPEATABLE READ",
    "database: looks in the request's old snapshot",
    "files: rename, using/ then pending/",
    "files: delete in pending/, then create in using/",
    "files: one folder, read once",
}
NEVER_TWO = {
    "database: autocommit, pending then using",
    "database: autocommit, one query for both",
    "database: autocommit, giving up leaves the record",
    "database: attempt in a SERIALIZABLE transaction",
    "Redis: as written, a new id for each call",
    "Redis: as written, one id for each worker",
    "Redis: giving up removes the id",
    "files: rename, pending/ then using/",
    "files: the same, folders read entry by entry",
    "files: create in using/, then delete in pending/",
    "files: one folder, read twice",
}
STUCK = {
    "database: autocommit, giving up leaves the record",
    "database: looks in the request's old snapshot",
    "Redis: as written, a new id for each call",
}
TITLES = [version.title for version in VERSIONS]


@cache
def found(clients: int) -> dict[str, Verdict]:
    return {each.version.title: each for each in verdicts(clients)}


@pytest.fixture(params=CLIENTS, ids=lambda clients: f"{clients}-clients")
def judged(request: pytest.FixtureRequest) -> dict[str, Verdict]:
    return found(request.param)


def test_every_version_is_in_the_table() -> None:
    assert sorted(TITLES) == sorted(TWO_HOLDERS | NEVER_TWO)
    assert not TWO_HOLDERS & NEVER_TWO


@pytest.mark.parametrize("title", sorted(TWO_HOLDERS))
def test_a_broken_version_shows_how_two_come_to_hold_it(judged: dict[str, Verdict], title: str) -> None:
    trace = judged[title].two_holders
    assert trace
    entered = [step[0] for step in trace if step.endswith(", and holds the lock")]
    left = [step[0] for step in trace if step.endswith("leaves the critical section")]
    assert trace[-1].endswith(", and holds the lock")
    assert len(set(entered) - set(left)) == 2


@pytest.mark.parametrize("title", sorted(NEVER_TWO))
def test_a_sound_version_never_has_two_holders(judged: dict[str, Verdict], title: str) -> None:
    assert judged[title].two_holders is None


@pytest.mark.parametrize("title", TITLES)
def test_nobody_can_ever_enter_again_where_a_claim_is_left_behind(judged: dict[str, Verdict], title: str) -> None:
    assert bool(judged[title].stuck) == (title in STUCK)


@pytest.mark.parametrize("title", TITLES)
def test_both_can_step_back_in_step_for_ever_wherever_they_see_each_others_pending(
    judged: dict[str, Verdict], title: str
) -> None:
    one = judged[title]
    unseen = "transaction" in title or "ATOMIC_REQUESTS" in title  # nobody sees an uncommitted pending
    assert one.livelock == (not unseen)
    assert bool(one.cycle) == one.livelock
    if one.cycle:
        assert not any("holds the lock" in step for step in one.cycle.round)
        assert {step[0] for step in one.cycle.round} >= set("ABC"[: one.clients])


def test_a_crash_that_leaves_a_pending_or_a_using_blocks_all_others_for_ever(judged: dict[str, Verdict]) -> None:
    crash = judged["database: autocommit, pending then using"].crash
    assert set(crash) == {"nothing", "pending", "using"}
    assert crash["nothing"].blocked == 0
    for left in ("pending", "using"):
        assert crash[left].go_on == 0
        assert crash[left].trace
        assert crash[left].trace[-1] == "A crashes"
    redis = judged["Redis: giving up removes the id"].crash
    assert {left for left, after in redis.items() if after.blocked} == {
        "id in the set",
        "id in the set + using:key",
        "using:key",
    }


def test_a_crash_inside_a_transaction_leaves_nothing_but_a_committed_using_blocks(judged: dict[str, Verdict]) -> None:
    attempt = judged["database: attempt in a SERIALIZABLE transaction"].crash
    assert str(attempt["nothing"]) == "others can go on"
    assert str(attempt["using"]) == "others blocked for ever"
    assert set(judged["database: ATOMIC_REQUESTS, READ COMMITTED"].crash) == {"nothing"}


def test_a_serializable_database_refuses_one_of_two_commits() -> None:
    version = next(version for version in VERSIONS if "SERIALIZABLE" in version.name)
    world = World(version, 2)
    labels = {label for state in explore(world).states() for _, label, _, _ in world.successors(state)}
    assert "A commits and is refused: could not serialize" in labels
    assert "B commits and is refused: could not serialize" in labels


def test_the_page_of_the_documentation_shows_these_verdicts() -> None:
    generated = markdown([list(found(clients).values()) for clients in CLIENTS])
    page = PAGE.read_text(encoding="utf-8")
    assert generated in page, "run: python -m proof seeds"


def test_the_command_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["seeds", "--clients", "2"]) == 0
    assert markdown([list(found(2).values())]) in capsys.readouterr().out
