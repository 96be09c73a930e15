"""What the page shows, again and again: one thread looks at the store for all viewers, while there are any."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from interlock import LockError, Locks
from interlock.cli import output

INTERVAL = 1.0  # seconds between two looks
BREATH = 0.02  # seconds between two looks at least, however many viewers come
MOST_CLAIMS = 1000  # that are sent; a browser with more is slow


class Feed:
    """Server-sent events, each with all that is to be seen.

    Args:
        locks: whose claims they are.
        facts: go with each event.

    A slow client misses looks, and then gets the latest one.
    """

    def __init__(self, locks: Locks, facts: Mapping[str, Any]) -> None:
        self._locks = locks
        self._facts = facts
        self._viewers = 0
        self._closed = False
        self._look_now = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._latest = ""
        self._next: asyncio.Future[None] | None = None

    async def stream(self) -> AsyncIterator[str]:
        """Yield what is to be sent to one viewer, until the feed is closed."""
        self._viewers += 1
        try:
            if self._loop is None:
                self._loop = asyncio.get_running_loop()
                self._next = self._loop.create_future()
                threading.Thread(target=self._look_again_and_again, name="interlock-serve", daemon=True).start()
            elif self._viewers == 1:
                self._latest = ""  # nobody has looked for a while
            self._look_now.set()
            yield "retry: 1000\n\n"
            if self._latest:
                yield self._latest
            while not self._closed and self._next is not None:
                await asyncio.shield(self._next)
                if not self._closed:
                    yield self._latest
        finally:
            self._viewers -= 1

    def look(self) -> None:
        """Look at the store now."""
        self._look_now.set()

    def close(self) -> None:
        """End all streams; on the event loop."""
        self._closed = True
        self._look_now.set()
        if self._next is not None and not self._next.done():
            self._next.set_result(None)

    def _look_again_and_again(self) -> None:
        while not self._closed:
            self._look_now.wait(INTERVAL if self._viewers else None)
            self._look_now.clear()
            time.sleep(BREATH)
            if self._closed or self._loop is None:
                return
            event = f"data: {json.dumps(self._seen())}\n\n"
            try:
                self._loop.call_soon_threadsafe(self._publish, event)
            except RuntimeError:  # the loop is closed
                return

    def _seen(self) -> dict[str, Any]:
        try:
            views = list(self._locks.claims())
        except LockError as error:
            return {**self._facts, "time": output.iso(time.time()), "error": str(error)}
        shown = output.lines_of(views[:MOST_CLAIMS])
        return {
            **self._facts,
            "time": output.iso(time.time()),
            "locks": [output.line_json(line) for line in shown],
            "hidden": max(0, len(views) - MOST_CLAIMS),
        }

    def _publish(self, event: str) -> None:
        if self._closed or self._next is None:
            return
        self._latest = event
        waiting, self._next = self._next, asyncio.get_running_loop().create_future()
        if not waiting.done():
            waiting.set_result(None)
