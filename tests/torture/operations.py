"""One operation of a worker, for both colours, with its records in the history."""

import itertools
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from time import monotonic
from typing import Any

from interlock.client.events import Event
from interlock.core.errors import StoreError
from tests.torture.history import History
from tests.torture.plan import EXCLUSIVE, HANDED, Choice
from tests.torture.protected_resource import Reader

_current: ContextVar[int] = ContextVar("operation", default=0)
_numbers = itertools.count(1)


class FailedRun(Exception):
    """The exception of a run of `once` that fails."""


class Board:
    """The tokens that are for any process to take.

    Args:
        history: the history; the tokens are in a folder beside it.
    """

    def __init__(self, history: History) -> None:
        self._folder = Path(history.path).parent / "tokens"
        self._folder.mkdir(exist_ok=True)

    def put(self, name: str, token: str) -> None:
        """Write a token.

        Args:
            name: of its lock.
            token: of `detach`.
        """
        new = self._folder / f"{os.getpid()}-{monotonic()}.new"
        new.write_text(json.dumps([name, token]))
        new.rename(new.with_suffix(".token"))

    def take(self) -> tuple[str, str]:
        """Return the name and the text of a token that no other process takes; empty if there is none."""
        for file in self._folder.glob("*.token"):
            mine = file.with_suffix(f".{os.getpid()}-{monotonic()}")
            with suppress(OSError):  # another process was faster
                file.rename(mine)
                name, token = json.loads(mine.read_text())
                return name, token
        return "", ""


class Operation:
    """An operation: from the call of acquire to the return of its release.

    Args:
        history: the history of the process.
        choice: the operation.
    """

    def __init__(self, history: History, choice: Choice) -> None:
        self._history = history
        self._choice = choice
        self._number = next(_numbers)
        _current.set(self._number)
        self.say("invoke", **choice.facts())

    def downgraded(self) -> "Operation":
        """Return a new operation: this writer, which is over, holds the lock as a reader from now on."""
        return Operation(self._history, self._choice._replace(kind="downgraded", units=1, timeout=0.0))

    def evicted(self, view: Any) -> None:
        """Record that a claim is going to be evicted."""
        self.say("evict", id=view.id, state=view.state)

    def say(self, event: str, t: float | None = None, **facts: Any) -> None:
        """Write a record of the operation."""
        self._history.write(event, t, op=self._number, **facts)

    def broke(self, error: BaseException) -> None:
        """Record that the operation was cancelled or failed."""
        kind = StoreError if isinstance(error, StoreError) else type(error)
        self.say("unknown", error=kind.__name__, text=str(error)[:300])

    def body(self, grant: Any, reader: Reader) -> Iterator[float]:
        """Run the critical section; yield the seconds to sleep."""
        grants = (grant,) if self._choice.kind != "all" else tuple(grant)
        self.say("ok", fences=[each.fence for each in grants], ids=[each.id for each in grants])
        name, fence = self._choice.names[0], min(each.fence for each in grants if each.name == self._choice.names[0])
        # A body without work ends before the release of the holder before it has a reply.
        exclusive = self._choice.kind in EXCLUSIVE and (self._choice.hold or self._choice.kind not in HANDED)
        fenced = reader.read("fenced", name, fence) if exclusive else -1
        plain = reader.read("plain", name, fence) if exclusive else -1
        for part in range(2):
            yield self._choice.hold / 2
            if not self._still(grant, "held"):
                break
            if exclusive and part:
                reader.write("plain", name, fence, plain + 1)
        if fenced >= 0:  # even if the lock is lost: the fence decides
            reader.write("fenced", name, fence, fenced + 1)
        self._still(grant, "over")

    def _still(self, grant: Any, event: str) -> bool:
        now = monotonic()  # before the check, so that the lock was held at this time
        held = bool(grant.held)
        self.say(event if held else "lost", now)
        return held


def listener(history: History) -> Any:
    """Return a listener that records waiting claims in the history."""

    def listen(event: Event) -> None:
        if event.kind == "queued":
            history.write("queued", op=_current.get(), id=event.id)

    return listen
