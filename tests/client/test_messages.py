"""Messages to callers that did not get the lock: its holders, and the number of waiters."""

from collections.abc import Sequence

import pytest

from interlock.client.messages import time_is_over, too_many_wait
from interlock.core.claims import SEPARATOR, ClaimView, LockSpec


def views(state: str, threads: Sequence[str]) -> list[ClaimView]:
    return [
        ClaimView("book", each, state, 1, 9, 1, "here", 7, each, "", None, 30.0)  # type: ignore[arg-type]
        for each in threads
    ]


@pytest.mark.parametrize(
    ("threads", "words"),
    [
        (["ann"], "ann of process 7 on here holds it."),
        (["ann", "bob"], "ann of process 7 on here and bob of process 7 on here hold it."),
        (["ann", "bob", "eve"], "ann of process 7 on here, bob of process 7 on here and 1 more hold it."),
    ],
)
def test_a_time_out_names_the_holders(threads: list[str], words: str) -> None:
    assert words in str(time_is_over("book", 5.0, views("using", threads)))


@pytest.mark.parametrize(
    ("waiters", "words"), [(["bob"], "1 other is already waiting"), (["bob", "eve"], "2 others are already waiting")]
)
def test_busy_names_the_waiters_and_the_limit(waiters: list[str], words: str) -> None:
    error = too_many_wait(LockSpec(f"{SEPARATOR}book", ttl=30), None, views("pending", waiters), 1)
    assert f"{words} (max_waiters=1). The lock is being handed over." in str(error)
    assert error.waiters == len(waiters)
