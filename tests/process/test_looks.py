"""A thread looks for a reply before it sleeps, as long as replies come soon."""

import pytest

from interlock.runtime._threads import Looks

pytestmark = pytest.mark.skipif(not Looks(True).wanted, reason="looks only where several processors share the work")


def looked(looks: Looks, reply: str | None) -> bool:
    """Return True if it looks for this reply."""
    calls = []

    def look() -> str | None:
        calls.append(reply)
        return reply

    assert looks.find(look) == (reply if calls else None)
    return bool(calls)


def test_replies_that_come_soon_are_always_looked_for() -> None:
    looks = Looks(True)
    assert all(looked(looks, reply) for reply in ["a", None, None] * 50)


def test_after_three_vain_looks_one_reply_in_a_hundred_is_looked_for() -> None:
    looks = Looks(True)
    assert [looked(looks, None) for _ in range(205)] == [*[True] * 3, *[False] * 100, True, *[False] * 100, True]
    assert [looked(looks, "a") for _ in range(101)] == [*[False] * 100, True]
    assert looked(looks, None)


def test_it_never_looks_if_it_is_not_wanted() -> None:
    assert not looked(Looks(False), "a")
