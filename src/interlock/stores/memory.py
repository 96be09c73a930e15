"""memory://: locks between the threads and tasks of one process; the reference store."""

import threading
from collections.abc import Sequence
from urllib.parse import SplitResult

from interlock.core.claims import MICROS, Check
from interlock.core.errors import InvalidArgument, StoreError
from interlock.core.line import (
    EMPTY,
    NO_TOKENS,
    Line,
    Origin,
    QueuedClaim,
    StepResult,
    StoreTime,
    Transition,
    complete,
    read_record,
    unchecked,
)
from interlock.core.queue import ALL
from interlock.runtime import clock
from interlock.runtime.process import HOST, each_in_forked_child, pid
from interlock.runtime.waiters import Notifier, Waiters
from interlock.storekit._sync.step_queue import StepStore
from interlock.storekit.blocking import WITHIN_A_STEP, BlockingStore


class MemoryNamespace(StepStore, Notifier):
    """The lines of one memory:// URL, shared by all connections of this process.

    Args:
        now: the lease clock, in seconds; tests pass another clock.
    """

    poll_after = 1.0  # seconds; a safety net, because every hand-over is notified
    never_blocks = True
    origin: Origin

    def __init__(self, now: clock.Clock = clock.now) -> None:
        self._now = now
        self.waiters = Waiters()
        self.start_afresh()

    @property
    def notifier(self) -> Notifier:
        return self

    def start_afresh(self) -> None:
        """Reset in a forked child, which owns nothing and shares nothing."""
        self.origin = Origin(f"{HOST} {pid()}")
        self._lines: dict[str, Line] = {}
        self._kept: dict[str, str] = {}
        self._mutex = threading.RLock()
        self._inside = False
        self._epoch = int((clock.time_of_day() - self._now()) * MICROS)

    def step(self, key: str, transition: Transition, *args: object) -> StepResult:
        """Perform a step without waiting; see `StepStore.step`.

        Raises:
            StoreError: the caller is a signal handler that interrupted a step of its own thread.
        """
        with self._mutex:
            if self._inside:  # like `Section`, which takes a microsecond
                raise StoreError(WITHIN_A_STEP)
            self._inside = True
            try:
                lease = int(self._now() * MICROS)
                now = unchecked(StoreTime, (lease, lease + self._epoch, NO_TOKENS))
                step = transition(self._lines.get(key, EMPTY), now, *args)
                line = step.line
                if line is not None:
                    if (
                        line.places
                        or line.max_fence >= lease + self._epoch
                        or line.record_expires > lease + self._epoch
                    ):
                        self._lines[key] = line
                    else:
                        self._lines.pop(key, None)
                        self._kept.pop(key, None)
                if step.answer is True and transition is complete:
                    self._kept[key] = str(args[-1])
                elif step.answer is True and transition is read_record:
                    step = step._replace(answer=self._kept.get(key, ""))
                return step
            finally:
                self._inside = False

    def keys(self, prefix: str) -> list[str]:
        """List the keys that begin with `prefix`."""
        return sorted(key for key in self._lines.copy() if key.startswith(prefix))

    def notify_others(self, promoted: Sequence[QueuedClaim]) -> None:
        """Do nothing: waiters are only in this process."""

    def doctor(self) -> list[Check]:
        """Report that other processes do not see these locks."""
        return [Check("reach", "warn", "memory:// exists in this process only. Use another store between processes.")]

    def close(self) -> None:
        """Do nothing: the namespace lives as long as the process."""


_spaces: dict[str, MemoryNamespace] = {}


def space(name: str) -> MemoryNamespace:
    """Return the namespace of a name; it lives as long as the process."""
    return _spaces.setdefault(name, MemoryNamespace())


each_in_forked_child(_spaces.values(), MemoryNamespace.start_afresh)


class MemoryStore(BlockingStore):
    """A store in the memory of this process.

    Args:
        space: the namespace of its lines.
    """

    features = ALL
    frees_at_death = True
    in_process = True
    now = staticmethod(clock.now)

    def __init__(self, space: MemoryNamespace) -> None:
        self._space = space

    @classmethod
    def from_url(cls, url: SplitResult) -> "MemoryStore":
        """Connect to memory:// or memory://space."""
        if url.query or url.fragment:
            raise InvalidArgument("memory:// has no options. Write memory:// or memory://space.")
        return cls(space(url.netloc + url.path))

    def steps(self) -> MemoryNamespace:
        """Return the step store of one queue."""
        return self._space
