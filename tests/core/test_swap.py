"""Steps by compare and swap: the cached line alone is never the answer."""

from typing import Any

import pytest

from interlock.core.claims import SEPARATOR, Claim, LockSpec
from interlock.core.errors import UnknownOutcome
from interlock.core.line import GONE, KEPT
from interlock.remote.failures import NoRoom, Refused, Unreachable
from tests.support.texts import Texts, TextStore


def claim(id: str) -> Claim:
    return Claim(id, LockSpec(f"p{SEPARATOR}a", 1, 1, 30.0, "", False), "me")


def test_who_was_evicted_by_others_hears_it_at_the_next_renewal() -> None:
    texts = Texts()
    mine, others = TextStore(texts).queue(), TextStore(texts).queue()
    first, second = claim("first"), claim("second")
    assert mine.enter(first, None, True, False).state == "using"
    assert others.evict(first.spec.key, first.id) == 1
    assert mine.renew([first]) == [GONE]
    assert mine.enter(second, None, True, False).state == "using"
    assert mine.renew([first]) == [GONE]  # though nothing else has changed
    assert mine.renew([first, second]) == [GONE, KEPT]
    mine.close()
    others.close()


class LosesReplies(Texts):
    """Texts whose next swap is performed without a reply; after that, a load fails."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.armed = False
        self._error = error
        self._fails: Exception | None = None

    def swap(self, *args: Any) -> int | None:
        version = super().swap(*args)
        if self.armed:
            self.armed, self._fails = False, self._error
            raise UnknownOutcome("by order of the test")
        return version

    def load(self, key: str) -> tuple[int | None, str, int]:
        fails, self._fails = self._fails, None
        if fails is not None:
            raise fails
        return super().load(key)


@pytest.mark.parametrize("error", [Refused("no"), NoRoom("full"), Unreachable("away")])
def test_a_refused_load_after_a_lost_swap_is_an_unknown_outcome(error: Exception) -> None:
    texts = LosesReplies(error)
    queue = TextStore(texts).queue()
    texts.armed = True
    with pytest.raises(UnknownOutcome, match=str(error)):
        queue.enter(claim("first"), None, False, False)
    assert [view.id for view in queue.look(f"p{SEPARATOR}a")] == ["first"]
    queue.close()


def test_a_step_whose_swap_had_no_reply_is_done_once_and_says_so() -> None:
    texts = LosesReplies()
    queue = TextStore(texts).queue()
    texts.armed = True
    assert queue.enter(claim("first"), None, True, False).state == "using"
    texts.armed = True
    assert queue.adopt(f"p{SEPARATOR}a", "first", claim("second")) is not None
    texts.armed = True
    assert queue.renew([claim("second")]) == [KEPT]
    texts.armed = True
    assert queue.leave(claim("second")) is True
    assert queue.enter(claim("third"), None, True, False).state == "using"
    texts.armed = True
    with pytest.raises(UnknownOutcome):  # nobody knows how many it has removed
        queue.evict(f"p{SEPARATOR}a", "third")
    assert queue.look(f"p{SEPARATOR}a") == []
    queue.close()
