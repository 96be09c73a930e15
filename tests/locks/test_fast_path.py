"""The fast path: a free lock is one plain call, whose answer counts only while its lease lasts."""

import asyncio
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from interlock import aconnect, connect
from interlock.core.queue import EnterResult
from interlock.locks.aio import session as of_tasks
from interlock.locks.sync import session as of_threads


def threads(use: Callable[[Any], Any], ttl: float) -> Any:
    """Return what `use` returns of a lock that a thread has acquired."""
    with connect(f"memory://{uuid4().hex}", ttl=ttl) as locks:
        slow_once(locks)
        with locks.lock("door") as grant:
            return use(grant), locks.claims("door")


def tasks(use: Callable[[Any], Any], ttl: float) -> Any:
    """Return what `use` returns of a lock that a task has acquired."""

    async def main() -> Any:
        async with aconnect(f"memory://{uuid4().hex}", ttl=ttl) as locks:
            slow_once(locks)
            async with locks.lock("door") as grant:
                return use(grant), await locks.claims("door")

    return asyncio.run(main())


SHORT = 1.0


def slow_once(locks: Any) -> None:
    """Let the first answer to a claim with a short lease come after it."""
    session = locks._session
    enter_now = session.enter_now
    answers: list[EnterResult] = []

    def late(*asked: Any) -> EnterResult:
        answers.append(answer := enter_now(*asked))
        if asked[0].spec.ttl == SHORT and len(answers) == 1:
            time.sleep(SHORT)
        return answer

    session.enter_now = late


@pytest.mark.parametrize(("colour", "module"), [(threads, of_threads), (tasks, of_tasks)])
def test_a_free_lock_is_acquired_without_a_call_that_could_wait(
    colour: Any, module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(module, "AcquireCall")
    left, line = colour(lambda grant: grant.expires_in, 30.0)
    assert 20.0 < left <= 30.0
    assert len(line) == 1


@pytest.mark.parametrize("colour", [threads, tasks])
def test_an_answer_that_comes_after_the_lease_is_no_grant(colour: Any) -> None:
    first, line = colour(lambda grant: (grant.id, grant.held), SHORT)
    assert first[1] is True
    assert [view.id for view in line] == [first[0]]
