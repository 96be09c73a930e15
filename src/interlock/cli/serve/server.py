"""Runs the page until a signal; then it ends at once, even if somebody still watches."""

import asyncio
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette

ENDING = (signal.SIGINT, signal.SIGTERM)
MOST_CONNECTIONS = 200
IO_TIMEOUT = 1  # seconds that an end waits for a client that does not read


class PageServer(uvicorn.Server):
    """uvicorn, whose end ends the streams of events, and is no death by the signal."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Meanwhile, end by a signal."""
        loop = asyncio.get_running_loop()
        for number in ENDING:
            loop.add_signal_handler(number, self._end)
        try:
            yield
        finally:
            for number in ENDING:
                loop.remove_signal_handler(number)

    def _end(self) -> None:
        self.force_exit = self.should_exit  # by a second one
        self.should_exit = True
        app = self.config.app
        if isinstance(app, Starlette):
            app.state.feed.close()


def run(app: Starlette, listening: socket.socket) -> None:
    """Serve until a signal."""
    config = uvicorn.Config(
        app,
        loop="asyncio",
        http="h11",
        ws="none",
        lifespan="off",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=IO_TIMEOUT,
    )
    asyncio.run(PageServer(config).serve([listening]))
