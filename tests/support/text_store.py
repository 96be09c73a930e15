"""The smallest possible store: texts in a dictionary, with compare and swap."""

import threading
import time
from collections.abc import Callable, Sequence

from interlock.core.claims import Check
from interlock.core.errors import UnknownOutcome
from interlock.core.failures import NoAnswer
from interlock.core.queue import ALL
from interlock.runtime import clock as runtime_clock
from interlock.storekit.blocking import BlockingStore
from interlock.storekit.compare_and_swap import SLACK, SwapSteps, SwapStore


class Texts(SwapStore[int]):
    """Texts in a dictionary: a `SwapStore`.

    Args:
        clock: the store's time of day, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._mutex = threading.Lock()  # makes each method atomic, as on a server
        self._texts: dict[str, tuple[int, str]] = {}
        self._values: dict[str, str] = {}
        self._clock = clock

    def load(self, key: str) -> tuple[int | None, str, int]:
        with self._mutex:
            return (*self._texts.get(key, (None, "")), self._now())

    def load_kept(self, key: str) -> tuple[str, str, int]:
        with self._mutex:
            return self._texts.get(key, (None, ""))[1], self._values.get(key, ""), self._now()

    def swap(self, key: str, version: int | None, text: str, now: int, value: str | None = None) -> int | None:
        with self._mutex:
            new = self._swap(key, version, text, now)
            if new is not None and value is not None:
                self._values[key] = value
            return new

    def swap_many(self, swaps: Sequence[tuple[str, int, str]], now: int) -> Sequence[int]:
        with self._mutex:
            versions = [self._swap(key, version, text, now) for key, version, text in swaps]
            return [] if None in versions else [version for version in versions if version is not None]

    def _now(self) -> int:
        return int(self._clock() * 1_000_000)

    def _swap(self, key: str, version: int | None, text: str, now: int) -> int | None:
        there = self._texts.get(key, (None, ""))[0]
        if there != version or abs(self._now() - now) > SLACK:
            return None
        self._texts[key] = ((version or 0) + 1, text)
        return (version or 0) + 1

    def permit(self, place: object) -> None:
        pass

    def keys(self, prefix: str) -> list[str]:
        with self._mutex:
            return sorted(key for key in self._texts if key.startswith(prefix))

    def doctor(self) -> list[Check]:
        return [Check("texts", "warn", "they are forgotten when the process ends")]

    def close(self) -> None:
        pass


class EstimatedTexts(Texts):
    """Texts with an estimate of their clock, which is `error` seconds late."""

    def __init__(self) -> None:
        super().__init__()
        self.error = 2.0

    @property
    def slack(self) -> int:
        return int(self.error * 1_000_000)

    @property
    def ahead(self) -> int:
        return self._now() - int((runtime_clock.awake_or_not() + self.error) * 1_000_000)

    def load(self, key: str) -> tuple[int | None, str, int]:
        version, text, now = super().load(key)
        return version, text, now - self.slack

    def _swap(self, key: str, version: int | None, text: str, now: int) -> int | None:
        return super()._swap(key, version, text, self._now())  # like a server that cannot compare the time


class LossyTexts(Texts):
    """Texts whose next swap is performed without a reply; after that, a load fails."""

    def __init__(self, error: Exception | None = None, lost: type[UnknownOutcome] = UnknownOutcome) -> None:
        super().__init__()
        self.armed = False
        self._lost = lost
        self._error = error
        self._fails: Exception | None = None

    def swap(self, key: str, version: int | None, text: str, now: int, value: str | None = None) -> int | None:
        new = super().swap(key, version, text, now, value)
        if self.armed:
            self.armed, self._fails = False, self._error
            raise self._lost("by order of the test")
        return new

    def load(self, key: str) -> tuple[int | None, str, int]:
        fails, self._fails = self._fails, None
        if fails is not None:
            raise fails
        return super().load(key)


class SlowTexts(LossyTexts):
    """Texts whose replies to a swap wait for `go`; the next reply after that is lost."""

    def __init__(self) -> None:
        super().__init__(lost=NoAnswer)
        self.go, self.waits = threading.Event(), threading.Event()
        self.go.set()

    def swap(self, key: str, version: int | None, text: str, now: int, value: str | None = None) -> int | None:
        new = super().swap(key, version, text, now, value)
        if not self.go.is_set():
            self.waits.set()
            assert self.go.wait(10)
            self.armed = True
        return new


class TextStore(BlockingStore):
    """A store in such a dictionary."""

    features = ALL

    def __init__(self, texts: Texts) -> None:
        self._texts = texts

    def steps(self) -> SwapSteps[int]:
        return SwapSteps(self._texts)
