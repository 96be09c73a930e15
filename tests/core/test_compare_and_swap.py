"""Steps by compare and swap: the cached line alone is never the answer."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from interlock.core.claims import MICROS, SEPARATOR, Claim, LockSpec
from interlock.core.errors import UnknownOutcome
from interlock.core.failures import NoRoom, Refused, Unreachable
from interlock.core.line import RENEWAL_GONE, RENEWAL_OK, decode
from interlock.testing.waiting import throughout
from tests.support.text_store import EstimatedTexts, LossyTexts, SlowTexts, Texts, TextStore


def claim(id: str) -> Claim:
    return Claim(id, LockSpec(f"p{SEPARATOR}a", 1, 1, 30.0, "", False), "me")


def test_who_was_evicted_by_others_hears_it_at_the_next_renewal() -> None:
    texts = Texts()
    mine, others = TextStore(texts).queue(), TextStore(texts).queue()
    first, second = claim("first"), claim("second")
    assert mine.enter(first, None, True, False).state == "using"
    assert others.evict(first.spec.key, first.id) == 1
    assert mine.renew([first]) == [RENEWAL_GONE]
    assert mine.enter(second, None, True, False).state == "using"
    assert mine.renew([first]) == [RENEWAL_GONE]  # though nothing else has changed
    assert mine.renew([first, second]) == [RENEWAL_GONE, RENEWAL_OK]
    mine.close()
    others.close()


@pytest.mark.parametrize("error", [Refused("no"), NoRoom("full"), Unreachable("away")])
def test_a_refused_load_after_a_lost_swap_is_an_unknown_outcome(error: Exception) -> None:
    texts = LossyTexts(error)
    queue = TextStore(texts).queue()
    texts.armed = True
    with pytest.raises(UnknownOutcome, match=str(error)):
        queue.enter(claim("first"), None, False, False)
    assert [view.id for view in queue.look(f"p{SEPARATOR}a")] == ["first"]
    queue.close()


def test_a_step_whose_swap_had_no_reply_is_done_once_and_says_so() -> None:
    texts = LossyTexts()
    queue = TextStore(texts).queue()
    texts.armed = True
    assert queue.enter(claim("first"), None, True, False).state == "using"
    texts.armed = True
    assert queue.adopt(f"p{SEPARATOR}a", "first", claim("second")) is not None
    texts.armed = True
    assert queue.renew([claim("second")]) == [RENEWAL_OK]
    texts.armed = True
    assert queue.leave(claim("second")) is True
    assert queue.enter(claim("third"), None, True, False).state == "using"
    texts.armed = True
    with pytest.raises(UnknownOutcome):  # nobody knows how many it has removed
        queue.evict(f"p{SEPARATOR}a", "third")
    assert queue.look(f"p{SEPARATOR}a") == []
    queue.close()


def test_a_step_beside_an_acquire_is_repeated_after_a_lost_reply() -> None:
    texts = SlowTexts()
    queue = TextStore(texts).queue()
    holder, new = claim("holder"), claim("new")
    assert queue.enter(holder, None, True, False).state == "using"
    with ThreadPoolExecutor(3) as pool:
        texts.go.clear()
        texts.waits.clear()
        renewed = pool.submit(queue.renew, [holder])
        assert texts.waits.wait(10)
        refused = pool.submit(queue.enter, claim("other"), None, False, False)
        throughout(0.2, lambda: not refused.done())  # it waits for the renewal, and performs the next batch
        adopted = pool.submit(queue.adopt, holder.spec.key, holder.id, new)
        throughout(0.2, lambda: not adopted.done())
        texts.go.set()
        assert renewed.result(10) == [RENEWAL_OK]
        assert adopted.result(10) is not None
        assert refused.result(10).state == "refused"
    queue.close()


def test_a_better_estimate_of_the_clock_counts_before_the_next_load() -> None:
    texts = EstimatedTexts()
    queue = TextStore(texts).queue()
    first = claim("first")
    assert queue.enter(first, None, True, False).state == "using"
    texts.error = 0.0  # a sample in the meantime
    assert queue.renew([first]) == [RENEWAL_OK]
    (place,) = decode(texts.load(first.spec.key)[1]).places
    assert (place.until - place.ttl) / MICROS == pytest.approx(time.time(), abs=1.0)
    queue.close()
