"""Leases: when each is renewed, what an answer means, and when a loss is told; by a clock that the test sets."""

import gc
import math
import time
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

from interlock.core.claims import Claim, LockSpec
from interlock.core.errors import LockLost, NotHeld, StoreError
from interlock.locks import leases
from interlock.client.base import LEASE_ENDED, BaseGrant
from interlock.locks.leases import MOST_DOUBTED, LeaseTable
from interlock.locks.watchdog import by_node, portions

LATER = time.monotonic() + 100_000  # leases that end after it have not ended by the clock of this machine
TTL = 30.0


class Watch:
    """A table with what it told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, list[str]]] = []
        self.table: LeaseTable[Any] = LeaseTable(self._lost, self._tell)

    def _lost(self, grant: BaseGrant) -> None:
        self.told.append(("on_lost", [grant.id]))

    def _tell(self, grants: Any, kind: str, reason: str) -> None:
        self.told.append((kind, [grant.id for grant in grants]))

    def grant(self, id: str, ends: float, renews: bool = True, heard: bool = True) -> BaseGrant:
        """Return a grant under watch whose lease ends so many seconds after `LATER`."""
        grant = BaseGrant((Claim(id, LockSpec("\0door", ttl=TTL)), 1, LATER + ends), renews, None)
        grant._session, grant._owner = SimpleNamespace(heard=heard), "ann"
        self.table.add(grant)
        return grant


@pytest.fixture
def watch() -> Watch:
    """A table with nothing in it."""
    return Watch()


def test_a_lease_is_renewed_when_a_third_of_it_is_over_and_others_go_along_a_tenth_before(watch: Watch) -> None:
    first, along, later = (watch.grant(id, ends) for id, ends in (("a", 30.0), ("b", 33.0), ("c", 33.01)))
    still = watch.grant("d", 30.0, renews=False)
    assert watch.table.next_due() == pytest.approx(LATER + 10.0, abs=1e-6)
    assert watch.table.look(LATER + 9.99) == []
    assert watch.table.look(first._due) == [first, along]
    assert first._due == first._deadline, "until it is answered, only its deadline counts"
    assert watch.table.next_due() == later._due
    assert still._due == still._deadline


def test_a_loss_is_told_at_the_deadline_and_once(watch: Watch) -> None:
    grant, quiet = watch.grant("a", 0.0), watch.grant("b", 0.0, heard=False)
    watch.table.look(math.nextafter(grant._deadline, 0))
    assert watch.told == []
    watch.table.look(grant._deadline)
    watch.table.lost(grant, "again")
    assert sorted(watch.told) == [("lost", ["a"]), ("on_lost", ["a"]), ("on_lost", ["b"])]
    assert grant._lost_because == LEASE_ENDED
    assert (grant.lost, quiet.lost, grant.held) == (True, True, False)
    with pytest.raises(LockLost, match="ended before it was renewed"):
        grant.check()


def test_a_lease_that_is_lost_while_it_leaves_was_released(watch: Watch) -> None:
    grant = watch.grant("a", 0.0)
    grant._leaving = True
    watch.table.lost(grant, "gone")
    assert watch.told == [("released", ["a"])]
    assert not grant.lost
    with pytest.raises(NotHeld):
        grant.check()


def test_an_answer_extends_from_when_it_was_asked_for_and_never_shortens(watch: Watch) -> None:
    grants = [watch.grant(id, 5.0) for id in "abcd"]
    grants.append(watch.grant("e", 5.0, heard=False))
    asked = [True, False, StoreError("busy"), True, True]
    watch.table.forget(watch.table.entries()[3])
    watch.table.answered(grants, asked, LATER)
    assert [grant._deadline - LATER for grant in grants] == pytest.approx([30.0, 5.0, 5.0, 5.0, 30.0], abs=1e-6)
    assert grants[0]._due == pytest.approx(LATER + 10.0, abs=1e-6)
    assert watch.told[:2] == [("lost", ["b"]), ("on_lost", ["b"])]
    assert watch.told[2:] == [("renewed", ["a"]), ("renewal failed", ["c"])]
    watch.table.answered(grants[:1], [True], LATER - 10)
    assert grants[0]._deadline == LATER + 30.0
    still = watch.grant("f", 5.0, renews=False)
    watch.table.answered([still], [True], LATER)
    assert still._deadline == LATER + 5.0, "who gave up renewing does not begin again"


def test_a_renewal_that_failed_is_repeated_soon_and_before_the_deadline(watch: Watch) -> None:
    grant = watch.grant("a", 5.0)
    for ttl, pause in ((30.0, 1.5), (0.1, 0.02)):
        grant._claim = grant._claim._replace(spec=LockSpec("\0door", ttl=ttl))
        watch.table.failed([grant], StoreError("away"), LATER)
        assert grant._due == pytest.approx(LATER + pause, abs=1e-6)
    assert watch.told == [("renewal failed", ["a"])] * 2
    watch.table.again([grant], LATER + 4.99)
    assert grant._due == grant._deadline


def test_nobody_is_warned_of_a_renewal_that_failed_after_the_release(
    watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    released, held = watch.grant("a", 5.0), watch.grant("b", 5.0)
    watch.table.forget(watch.table.entries()[0])
    watch.table.failed([released], StoreError("closed"), LATER)
    assert (watch.told, caplog.messages) == ([], [])
    watch.table.failed([released, held], StoreError("away"), LATER)
    assert caplog.messages == ["renewing 1 lease(s) failed, trying again: away"]


def test_a_doubted_lease_is_asked_for_at_once_even_if_it_is_not_renewed(watch: Watch) -> None:
    still = watch.grant("a", 20.0, renews=False)
    other = watch.grant("b", 60.0)
    assert watch.table.doubt("a") is True
    assert watch.table.look(LATER) == [still]
    assert watch.table.doubt("c") is False
    late = watch.grant("c", 60.0)
    assert watch.table.look(LATER) == [late]
    assert watch.table.doubted == {}
    assert other._due > LATER


def test_doubts_about_claims_that_never_come_are_forgotten_the_oldest_first(watch: Watch) -> None:
    for number in range(MOST_DOUBTED + 1):
        watch.table.doubt(f"claim {number}")
    assert len(watch.table.doubted) == MOST_DOUBTED
    assert "claim 0" not in watch.table.doubted


def test_a_claim_that_stays_for_its_at_least_leaves_when_that_is_over(watch: Watch) -> None:
    grant = watch.grant("a", 30.0)
    grant._free_at = LATER + 7.0
    watch.table.stay(grant)
    assert watch.table.live() == []
    assert watch.table.next_due() == LATER + 7.0
    assert watch.table.over(LATER + 6.99) == []
    assert watch.table.over(LATER + 7.0) == [grant._claim]
    assert watch.table.over(LATER + 8.0) == []
    assert watch.table.next_due() == math.inf


def test_what_was_collected_is_an_entry_without_a_grant_until_its_lease_ends(watch: Watch) -> None:
    grant = watch.grant("a", 0.0)
    claim = grant._claim
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        begun = time.monotonic()
        del grant
        gc.collect()
    assert [each.category for each in warned] == [ResourceWarning]
    (entry,) = watch.table.entries()
    assert (entry.grant, entry.claim, entry.owner) == (None, claim, "ann")
    ends = watch.table.next_due()
    assert begun + TTL <= ends <= time.monotonic() + TTL
    watch.table.look(math.nextafter(ends, 0))
    assert watch.table.entries() == [entry]
    watch.table.look(ends)
    assert watch.table.entries() == []


def test_a_grant_that_is_dropped_while_it_leaves_is_an_entry_too_and_warns_nobody(watch: Watch) -> None:
    grant = watch.grant("a", 0.0)
    grant._leaving = True
    watch.table.add(grant)
    claim = grant._claim
    del grant
    gc.collect()
    assert watch.table.live() == []
    assert [(entry.grant, entry.claim) for entry in watch.table.entries()] == [(None, claim)]


def test_leases_that_end_first_are_renewed_first_and_each_node_by_itself(watch: Watch) -> None:
    grants = [watch.grant(str(number), 60.0 - number) for number in range(5)]
    assert [[each.id for each in portion] for portion in portions(list(grants), 2)] == [["4", "3"], ["2", "1"], ["0"]]
    assert by_node(None, grants) == {None: grants}
    nodes = by_node(lambda claim: int(claim.id) % 2, grants)
    assert {node: [each.id for each in there] for node, there in nodes.items()} == {0: ["0", "2", "4"], 1: ["1", "3"]}


def test_who_is_told_of_a_failure_is_who_listens_and_is_still_watched(watch: Watch) -> None:
    heard, quiet, gone = watch.grant("a", 5.0), watch.grant("b", 5.0, heard=False), watch.grant("c", 5.0)
    watch.table.forget(watch.table.entries()[2])
    watch.table.failed([heard, quiet, gone], StoreError("away"), LATER)
    assert watch.told == [("renewal failed", ["a"])]
    watch.told.clear()
    watch.table.failed([quiet], StoreError("away"), LATER)
    watch.table.answered([quiet], [True], LATER)
    assert watch.told == []


def test_what_was_forgotten_is_neither_renewed_nor_lost(watch: Watch) -> None:
    grant = watch.grant("a", 5.0)
    (entry,) = watch.table.entries()
    assert (entry.grant, entry.claim, entry.owner) == (grant, grant._claim, "ann")
    watch.table.forget(entry)
    watch.table.answered([grant], [False], LATER)
    watch.table.answered([grant], [True], LATER)
    assert (watch.told, grant.held, grant._deadline) == ([], True, LATER + 5.0)
    assert (watch.table.live(), watch.table.entries(), watch.table.next_due()) == ([], [], math.inf)


def test_a_look_renews_nothing_while_nothing_is_due(watch: Watch) -> None:
    grant, still = watch.grant("a", 30.0), watch.grant("b", 20.5, renews=False)
    moment = watch.table.next_due()
    assert moment == grant._due < still._due
    assert watch.table.look(math.nextafter(moment, 0)) == []
    assert watch.table.look(moment) == [grant]
    assert watch.table.look(moment) == [], "it was asked for already"


def test_a_doubt_is_for_one_claim_and_ends_with_the_look(watch: Watch) -> None:
    first, second = watch.grant("a", 60.0), watch.grant("b", 60.0)
    assert watch.table.is_doubted(first) is False
    watch.table.doubt("c")
    watch.table.doubt("b")
    assert (first._due, second._due) == (pytest.approx(LATER + 40.0, abs=1e-6), 0.0)
    assert list(watch.table.doubted) == ["c"]
    for number in range(MOST_DOUBTED - 1):
        watch.table.doubt(f"claim {number}")
    assert (len(watch.table.doubted), next(iter(watch.table.doubted))) == (MOST_DOUBTED, "c")


def test_the_next_look_is_at_the_first_of_all_moments(watch: Watch) -> None:
    grant, staying, other = watch.grant("a", 30.0), watch.grant("b", 30.0), watch.grant("c", 30.0)
    staying._free_at, other._free_at = LATER + 3.0, LATER + 20.0
    watch.table.stay(other)
    assert watch.table.next_due() == grant._due
    watch.table.stay(staying)
    assert watch.table.next_due() == LATER + 3.0
    assert watch.table.over(LATER + 3.0) == [staying._claim]
    assert watch.table.next_due() == grant._due
    assert watch.table.over(LATER + 20.0) == [other._claim]


def test_what_was_dropped_without_a_warning_stays_until_its_lease_ends(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "time", SimpleNamespace(monotonic=lambda: 500.0))
    grant = watch.grant("a", 0.0)
    grant._leaving = True
    watch.table.add(grant)
    del grant
    gc.collect()
    assert watch.table.live() == []
    assert watch.table.next_due() == 500.0 + TTL
    monkeypatch.setattr(leases, "time", SimpleNamespace(monotonic=lambda: 500.0 + TTL))
    assert watch.table.next_due() == math.inf


def test_a_look_that_comes_late_finds_all_that_has_ended(watch: Watch) -> None:
    lost, staying = watch.grant("a", 0.0), watch.grant("b", 60.0)
    staying._free_at = LATER + 1.0
    watch.table.stay(staying)
    watch.table.look(LATER + 5.0)
    assert watch.told == [("lost", ["a"]), ("on_lost", ["a"])]
    assert lost.lost
    assert watch.table.over(LATER + 5.0) == [staying._claim]
    dropped = watch.grant("c", 60.0)
    dropped._leaving = True
    watch.table.add(dropped)
    del dropped
    gc.collect()
    assert watch.table.live() == []
    assert len(watch.table.entries()) == 1
    watch.table.look(LATER + 5.0)
    assert watch.table.entries() == []


@pytest.mark.parametrize("child", [-1, 1])
def test_a_forked_child_says_nothing_of_what_its_parent_dropped(
    watch: Watch, child: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant = watch.grant("a", 60.0)
    monkeypatch.setattr(leases, "pid", lambda: watch.table._pid + child)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        del grant
        gc.collect()
    assert warned == []
    assert watch.table.entries() == []


def test_each_renewal_has_its_answer(watch: Watch) -> None:
    grant = watch.grant("a", 5.0)
    with pytest.raises(ValueError, match="shorter"):
        watch.table.answered([grant], [], LATER)


def test_those_that_go_along_are_due_within_a_tenth_of_their_own_lease(watch: Watch) -> None:
    first, along, later = (watch.grant(id, ends) for id, ends in (("a", 30.0), ("b", 33.0), ("c", 33.0)))
    for grant, tenth in ((along, 3.5), (later, 2.5)):
        grant._claim = grant._claim._replace(spec=LockSpec("\0door", ttl=10 * tenth))
    along._due, later._due = first._due + 3.25, first._due + 2.75
    assert watch.table.look(first._due) == [first, along]
