"""Events cost nothing while nobody listens: nothing of the seam is called, no event is made."""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import pytest

import interlock
from interlock.client import events
from interlock.client.base import BaseClient, BaseGrant

TELLS = (BaseGrant._tell, BaseGrant._tell_acquired, BaseClient.queued)


def of_the_seam(code: CodeType) -> bool:
    """Tell whether it is code that makes or tells an event."""
    return code.co_filename == events.__file__ or code in {each.__code__ for each in TELLS}


def called_by(work: Callable[[], object]) -> Counter[str]:
    """Return which functions of the seam `work()` calls, and how often."""
    found: Counter[str] = Counter()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and of_the_seam(frame.f_code):
            found[frame.f_code.co_name] += 1

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


def of_threads(subscribe: bool) -> Counter[str]:
    locks = interlock.connect("memory://")
    if subscribe:
        locks.subscribe(lambda event: None)
    lock = locks.lock("a")

    def work() -> None:
        for _ in range(3):
            with lock:
                assert lock.acquire(timeout=0.01) is None

    return called_by(work)


def of_tasks(subscribe: bool) -> Counter[str]:
    async def story() -> None:
        async with interlock.aconnect("memory://") as locks:
            if subscribe:
                locks.subscribe(lambda event: None)
            for _ in range(3):
                async with locks.lock("a") as grant:
                    assert await locks.lock("a").acquire(timeout=0.01) is None
                    assert grant.held

    return called_by(lambda: asyncio.run(story()))


@pytest.mark.parametrize("pairs", [of_threads, of_tasks])
def test_nothing_of_the_seam_is_called_while_nobody_listens(pairs: Callable[[bool], Counter[str]]) -> None:
    seen = pairs(True)  # it would be seen
    assert seen["_tell_acquired"] == seen["queued"] == 3
    silent = pairs(False)
    del silent["add_heard"]  # a new connection: who listens to all of them is to hear it
    assert silent == Counter()
