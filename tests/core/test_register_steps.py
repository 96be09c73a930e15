"""The pending protocol, request by request, on a register that answers what the test says."""

from typing import Any

import pytest

from interlock.core.claims import PENDING, QUEUED, SEPARATOR, Claim, LockSpec, State
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.pending import NEIGHBOUR_PAUSE, Pending, Record
from interlock.core.queue import GIVEN_UP, GONE, REFUSED, EnterResult
from tests.support.played import played

KEY = f"app{SEPARATOR}door"
CLAIM = Claim("b", LockSpec(KEY))
WAKEUP = "a wake-up"


class Requests:
    """A register whose requests are their names and arguments."""

    def __init__(self, folds: bool) -> None:
        self.folds = folds
        self.poll = 3.0

    def __getattr__(self, name: str) -> Any:
        return lambda *asked: (name, *asked)


def record(id: str, state: State = "pending", ended: bool = False) -> Record:
    """Return a record; the order of the ids is that of the line."""
    return Record(id, id, 1, 1, state, 7 if state == "using" else 0, ended)


def entered(*steps: tuple[Any, Any], folds: bool = False, wait: bool = True, again: bool = False) -> Any:
    """Return the result of an `enter`."""
    queue = Pending(Requests(folds))
    return played(queue.enter(CLAIM, WAKEUP, wait, again), *steps)


CREATE = (("create", CLAIM, WAKEUP), None)
DELETE = (("delete", CLAIM), True)
PROMOTE = ("promote", CLAIM)
AT_ONCE = ("promote_if_free", CLAIM)


def renew(answer: Any) -> tuple[Any, Any]:
    """Return the step in which a claim that is in line is renewed."""
    return ("renew", (CLAIM,), WAKEUP), [answer]


def shows(*records: Record) -> tuple[Any, Any]:
    """Return the step in which the register shows these."""
    return ("list", KEY), list(records)


def flag(state: State, done: bool = True) -> tuple[Any, Any]:
    """Return the step in which the flag is raised or lowered."""
    return ("update", CLAIM, state), done


def test_a_free_lock_is_claimed_looked_at_and_promoted() -> None:
    assert entered(CREATE, shows(record("b")), (PROMOTE, 7)) == EnterResult("using", 7)
    assert entered(CREATE, shows(record("b")), (PROMOTE, 0)) == EnterResult("using", 0), "a fence may be 0"
    assert entered(CREATE, (AT_ONCE, 7), folds=True) == EnterResult("using", 7)
    assert entered(CREATE, (AT_ONCE, 0), folds=True) == EnterResult("using", 0)
    assert entered(renew(True), shows(record("b", "using")), again=True) == EnterResult("using", 7)


def test_a_promotion_that_is_refused_is_no_grant_and_a_folded_one_looks_once_more() -> None:
    assert entered(CREATE, shows(record("b")), (PROMOTE, None), DELETE) == GONE
    again = (CREATE, (AT_ONCE, None), shows(record("b")), (AT_ONCE, None), shows(record("b", "using")))
    assert entered(*again, folds=True) == EnterResult("using", 7)
    refused = (CREATE, (AT_ONCE, None), shows(record("b")), (AT_ONCE, 0))
    assert entered(*refused, folds=True) == EnterResult("using", 0)


def test_a_claim_that_is_gone_says_so_and_leaves_no_record() -> None:
    assert entered(renew(False), DELETE, again=True) == GONE
    assert entered(CREATE, shows(), DELETE) == GONE
    assert entered(CREATE, shows(record("a", "using"), record("b", "queued")), flag(PENDING, False), DELETE) == GONE
    assert entered(CREATE, shows(record("a"), record("b")), flag(QUEUED, False), DELETE) == GONE
    lost = (CREATE, (("list", KEY), UnknownOutcome("no answer")))
    assert entered(*lost, (("delete", CLAIM), UnknownOutcome("no answer"))) is GIVEN_UP
    with pytest.raises(StoreError, match="away"):
        entered(*lost, (("delete", CLAIM), StoreError("away")))


def test_who_is_behind_steps_aside_and_who_is_first_raises_its_flag_and_looks_again() -> None:
    line = record("a"), record("b")
    assert entered(CREATE, shows(*line), flag(QUEUED)) == EnterResult("pending", 0, 3.0)
    aside = record("a"), record("b", "queued")
    assert entered(renew(True), shows(*aside), again=True) == EnterResult("pending", 0, 3.0), "it is aside already"
    first = record("b", "queued"), record("c", "using")
    raised = record("b"), record("c", "using")
    steps = renew(True), shows(*first), flag(PENDING), shows(*raised)
    assert entered(*steps, again=True) == EnterResult("pending", 0, 3.0)


def test_a_neighbour_is_waited_for_a_moment_even_by_a_try() -> None:
    line = shows(record("b"), record("c"))
    for wait in (True, False):
        assert entered(CREATE, line, wait=wait) == EnterResult("pending", 0, NEIGHBOUR_PAUSE)


def test_a_try_that_can_not_have_it_leaves_nothing_behind() -> None:
    assert entered(CREATE, shows(record("a"), record("b")), DELETE, wait=False) == REFUSED
    assert entered(CREATE, shows(record("b"), record("c", "using")), DELETE, wait=False) == REFUSED


def test_who_waits_removes_one_record_whose_lease_has_ended() -> None:
    line = shows(record("a", "using"), record("b"), record("d", ended=True), record("e", ended=True))
    reap = (("reap", KEY, "d"), None)
    assert entered(CREATE, line, reap) == EnterResult("pending", 0, 3.0)


def test_the_other_requests_go_to_the_register_as_they_are() -> None:
    queue = Pending(Requests(folds=False))
    assert played(queue.leave(CLAIM), (("delete", CLAIM), True)) is True
    assert played(queue.renew([CLAIM]), (("renew", [CLAIM], None), [True])) == [True]
    assert played(queue.look(KEY), (("look", KEY), [])) == []
    assert played(queue.evict(KEY, "a"), (("evict", KEY, "a"), 1)) == 1
