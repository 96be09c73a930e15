"""The pending protocol, request by request, on records of a store that answers what the test says."""

from collections.abc import Generator
from types import coroutine
from typing import Any

import pytest

from interlock.core._async.pending import NEIGHBOUR_PAUSE, AsyncPending, Record
from interlock.core.claims import PENDING, QUEUED, SEPARATOR, Claim, LockSpec, State
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.queue import GIVEN_UP, GONE, REFUSED, EnterResult
from tests.support.played import played

KEY = f"app{SEPARATOR}door"
CLAIM = Claim("b", LockSpec(KEY))


class Requests:
    """Records whose requests are their names and arguments."""

    look_again = 3.0

    def __getattr__(self, name: str) -> Any:
        @coroutine
        def request(*asked: Any) -> Generator[Any, Any, Any]:
            return (yield (name, *asked))

        return request


def record(id: str, state: State = "pending", ended: bool = False) -> Record:
    """Return a record; the order of the ids is that of the line."""
    return Record(id, id, 1, 1, state, 7 if state == "using" else 0, ended)


def entered(*steps: tuple[Any, Any], wait: bool = True, again: bool = False) -> Any:
    """Return the result of an `enter`."""
    protocol: Any = AsyncPending(Requests())  # type: ignore[arg-type]
    return played(protocol.enter(CLAIM, wait, again), *steps)


CREATE = (("create", CLAIM), None)
DELETE = (("delete", CLAIM), True)
PROMOTE = ("promote", CLAIM)


def renew(answer: Any) -> tuple[Any, Any]:
    """Return the step in which a claim that is in line is renewed."""
    return ("renew", (CLAIM,)), [answer]


def shows(*records: Record) -> tuple[Any, Any]:
    """Return the step in which the store shows these."""
    return ("list", KEY), list(records)


def flag(state: State, done: bool = True) -> tuple[Any, Any]:
    """Return the step in which the flag is raised or lowered."""
    return ("update", CLAIM, state), done


def test_a_free_lock_is_claimed_looked_at_and_promoted() -> None:
    assert entered(CREATE, shows(record("b")), (PROMOTE, 7)) == EnterResult("using", 7)
    assert entered(CREATE, shows(record("b")), (PROMOTE, 0)) == EnterResult("using", 0), "a fence may be 0"
    assert entered(renew(True), shows(record("b", "using")), again=True) == EnterResult("using", 7)


def test_a_promotion_that_is_refused_is_no_grant() -> None:
    assert entered(CREATE, shows(record("b")), (PROMOTE, None), DELETE) == GONE


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
