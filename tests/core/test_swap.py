"""Steps by compare and swap: the cached line alone is never the answer."""

from interlock.core.claims import SEPARATOR, Claim, LockSpec
from interlock.core.line import GONE, KEPT
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
