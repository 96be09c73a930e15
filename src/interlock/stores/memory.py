"""memory:// - locks between the threads and asyncio tasks of one process; the reference of all stores."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult

from interlock.core.claims import PENDING, SEPARATOR, USING, Check, Claim, ClaimView, State, keys_of, namespace_of
from interlock.core.effects import Call, Op
from interlock.core.errors import InvalidArgument
from interlock.core.line import has_room, promotable
from interlock.core.queue import GONE, OCCUPIED, REFUSED, EnterResult, Granted, Renewed
from interlock.core.store import BaseStore
from interlock.runtime.process import HOST, in_forked_child, pid
from interlock.runtime.sync import ThreadEvent, step_under

if TYPE_CHECKING:
    from interlock.runtime.aio import TaskEvent

LOOK_AGAIN = 1.0  # seconds; only a safety net, every hand-over is told


class _Line:
    """A live claim's place in the line of its name."""

    __slots__ = ("capacity", "claim", "fence", "held_since", "since", "state", "units", "until", "wakeup")

    def __init__(self, claim: Claim, state: State, fence: int, until: float, wakeup: Any) -> None:
        self.claim = claim
        self.units = claim.spec.units
        self.capacity = claim.spec.capacity
        self.state: State = state
        self.fence = fence
        self.until = until
        self.wakeup = wakeup
        self.since = self.held_since = time.time()


class Space:
    """The lines of one memory:// URL, shared by all who connect to it in this process."""

    def __init__(self) -> None:
        self.mutex = threading.RLock()
        self.lines: dict[str, list[_Line]] = {}
        self.fence = 0  # one counter for all names: no name leaves anything behind

    def reset(self) -> None:
        """Forget everything: a forked child owns nothing and shares nothing."""
        self.__init__()  # type: ignore[misc]

    def next_fence(self) -> int:
        """Issue a fence; called under the mutex, in the step that promotes."""
        self.fence += 1
        return self.fence

    def live(self, key: str, now: float) -> list[_Line]:
        """Return the live places of `key` after removing the expired ones."""
        places = self.lines.get(key)
        if places is None:
            return []
        for place in places:  # not by any(): a generator takes as long as all of the rest here
            if place.until <= now:
                break
        else:
            return places
        places[:] = [place for place in places if place.until > now]
        if not places:
            del self.lines[key]
        return places

    def hand_over(self, key: str, places: list[_Line]) -> None:
        """Promote and tell the waiters whose turn has come; forget a line that is empty."""
        if not places:
            self.lines.pop(key, None)
            return
        for place in list(promotable(places)):
            place.state = USING
            place.fence = self.next_fence()
            place.held_since = time.time()
            if place.wakeup is not None:
                place.wakeup.tell(Granted(place.claim.id, place.fence))


_spaces: dict[str, Space] = {}


def space(name: str) -> Space:
    """Return the space of that name; it lives as long as the process."""
    return _spaces.setdefault(name, Space())


def _after_fork() -> None:
    for each in _spaces.values():
        each.reset()


in_forked_child(_after_fork)


class MemoryStore(BaseStore):
    """A store in the memory of this process.

    Args:
        space: where its lines are kept.
        clock: the store's clock, in seconds; another one only for tests.
    """

    frees_at_death = True

    def __init__(self, space: Space, clock: Callable[[], float] = time.monotonic) -> None:
        self._space = space
        self._clock = clock

    @classmethod
    def from_url(cls, url: SplitResult) -> "MemoryStore":
        """Connect to memory:// or memory://space."""
        if url.query or url.fragment:
            raise InvalidArgument("memory:// has no options: write memory:// or memory://space")
        return cls(space(url.netloc + url.path))

    def enter(self, claim: Claim, wakeup: Any, wait: bool, again: bool) -> Op[EnterResult]:
        """As `Queue.enter`."""
        result: EnterResult = yield Call(self.enter_now, (claim, wakeup, wait, again))
        return result

    def enter_now(self, claim: Claim, wakeup: Any, wait: bool, again: bool) -> EnterResult:
        """As `enter`, without a generator around it."""
        spec = claim.spec
        key = spec.key
        mine = self._space
        with step_under(mine.mutex):
            now = self._clock()
            places = mine.live(key, now)
            if places:
                mine.hand_over(key, places)  # a lease that just ended may have made room
                place = next((p for p in places if p.claim.id == claim.id), None)
                if place is not None:
                    place.until = now + spec.ttl
                    place.wakeup = wakeup or place.wakeup
                    if place.state == USING:
                        return EnterResult("using", place.fence)
                    return EnterResult("pending", 0, _recheck_after(places, now))
            if again:
                return GONE
            if has_room(places, spec.units, spec.capacity) if places else spec.units <= spec.capacity:
                fence = mine.next_fence()
                mine.lines.setdefault(key, places).append(_Line(claim, USING, fence, now + spec.ttl, wakeup))
                return EnterResult("using", fence)
            if not wait:
                return REFUSED
            if wakeup is None:
                return OCCUPIED
            places.append(_Line(claim, PENDING, 0, now + spec.ttl, wakeup))
            return EnterResult("pending", 0, _recheck_after(places, now))

    def leave(self, claim: Claim) -> Op[bool]:
        """As `Queue.leave`."""
        removed: bool = yield Call(self.leave_now, (claim,))
        return removed

    def leave_now(self, claim: Claim) -> bool:
        """As `leave`, without a generator around it."""
        key = claim.spec.key
        mine = self._space
        with step_under(mine.mutex):
            places = mine.live(key, self._clock())
            for index, place in enumerate(places):
                if place.claim.id == claim.id:
                    del places[index]
                    mine.hand_over(key, places)
                    return True
            mine.hand_over(key, places)
            return False

    def renew(self, claims: Sequence[Claim]) -> Op[list[Renewed]]:
        """As `Queue.renew`."""
        renewed: list[Renewed] = yield Call(self._renew, (claims,))
        return renewed

    def _renew(self, claims: Sequence[Claim]) -> list[Renewed]:
        with step_under(self._space.mutex):
            return [self._renew_one(claim) for claim in claims]

    def _renew_one(self, claim: Claim) -> bool:
        now = self._clock()
        places = self._space.live(claim.spec.key, now)
        self._space.hand_over(claim.spec.key, places)
        for place in places:
            if place.claim.id == claim.id:
                place.until = now + claim.spec.ttl
                return True
        return False

    def look(self, key: str) -> Op[list[ClaimView]]:
        """As `Queue.look`."""
        views: list[ClaimView] = yield Call(self._look, (key,))
        return views

    def _look(self, key: str) -> list[ClaimView]:
        with step_under(self._space.mutex):
            now = self._clock()
            keys = keys_of(key, sorted(self._space.lines))
            return [_view(place, now) for each in keys for place in self._space.live(each, now)]

    def namespaces(self) -> Op[list[str]]:
        """As `BaseStore.namespaces`."""
        found: list[str] = yield Call(self._namespaces, ())
        return found

    def _namespaces(self) -> list[str]:
        with step_under(self._space.mutex):
            now = self._clock()
            return sorted({namespace_of(key) for key in list(self._space.lines) if self._space.live(key, now)})

    def evict(self, key: str, id: str | None) -> Op[int]:
        """As `Queue.evict`."""
        count: int = yield Call(self._evict, (key, id))
        return count

    def _evict(self, key: str, id: str | None) -> int:
        with step_under(self._space.mutex):
            places = self._space.live(key, self._clock())
            evicted = [place for place in places if id is None or place.claim.id == id]
            places[:] = [place for place in places if place not in evicted]
            self._space.hand_over(key, places)
        for place in evicted:
            if place.state == PENDING and place.wakeup is not None:
                place.wakeup.tell()
        return len(evicted)

    def thread_wakeup(self) -> ThreadEvent:
        """Return a wake-up for the calling thread."""
        return ThreadEvent()

    def task_wakeup(self) -> "TaskEvent":
        """Return a wake-up for the calling task."""
        from interlock.runtime.aio import TaskEvent  # only programs with an event loop load asyncio

        return TaskEvent()

    def doctor(self) -> list[Check]:
        """As `Store.doctor`: memory needs nothing, but reaches nobody outside the process."""
        return [Check("reach", "warn", "memory:// is seen by this process only; use another store between processes")]

    def close(self) -> None:
        """Nothing to close: the space lives as long as the process."""


def _recheck_after(places: list[_Line], now: float) -> float:
    return max(0.001, min(LOOK_AGAIN, min(place.until for place in places) - now))


def _view(place: _Line, now: float) -> ClaimView:
    spec = place.claim.spec
    return ClaimView(
        name=spec.key.partition(SEPARATOR)[2],
        id=place.claim.id,
        state="using" if place.state == USING else "pending",
        units=spec.units,
        capacity=spec.capacity,
        fence=place.fence or None,
        host=HOST,
        pid=pid(),
        thread=place.claim.who,
        label=spec.label,
        since=place.since,
        expires_in=place.until - now,
        held_since=place.held_since if place.state == USING else None,
    )
