"""The page, its events, the one request that changes something, and the server of it all."""

import asyncio
import hmac
import json
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from interlock import InvalidArgument, LockError, Locks
from interlock.cli import output
from interlock.cli.exits import say

ENDING = (signal.SIGINT, signal.SIGTERM)
MOST_CONNECTIONS = 200
IO_TIMEOUT = 1  # seconds that an end waits for a client that does not read
INTERVAL = 1.0  # seconds between two looks
BREATH = 0.02  # seconds between two looks at least, however many viewers come
MOST_CLAIMS = 1000  # that are sent; a browser with more is slow
HERE = Path(__file__).parent
TYPES = {"page.html": "text/html", "page.js": "text/javascript", "page.css": "text/css"}
MOST_BYTES = 16_384  # of a request to evict
STRANGE = "This is no name of this page; give it to interlock serve by --allow-host.\n"
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Feed:
    """Server-sent events, each with all that is to be seen.

    Args:
        locks: the locks of these claims.
        facts: go with each event.

    A slow client misses looks, and then gets the latest one.
    """

    def __init__(self, locks: Locks, facts: Mapping[str, object]) -> None:
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
                self._latest = ""  # the page was not read for a while
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


class RequestRefused(Exception):
    """A request to evict is refused: the status, and what to do."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Guard:
    """Answers only requests for this page by a name that is its own, and adds the headers that browsers obey.

    Any other name is a foreign one that leads here for a moment (DNS rebinding): its page could read
    this one. A plain address can't be had that way.
    """

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app = app
        self._names = {"localhost", *(name.lower().strip("[]") for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        if self._is_own(Headers(scope=scope).getlist("host")):
            await self._app(scope, receive, send_with_headers)
        else:
            await PlainTextResponse(STRANGE, 400)(scope, receive, send_with_headers)

    def _is_own(self, hosts: list[str]) -> bool:
        try:
            (host,) = hosts
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in self._names:
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True


class Page:
    """What the routes lead to.

    Args:
        locks: the locks whose claims are shown.
        feed: what is sent to the browsers.
        token: allows evictions; None: the page can't evict.
    """

    def __init__(self, locks: Locks, feed: Feed, token: str | None) -> None:
        self._locks = locks
        self._feed = feed
        self._token = token
        self._files = {name: (HERE / name).read_bytes() for name in TYPES}

    async def file(self, request: Request) -> Response:
        """Send a file of the page."""
        name = request.url.path.removeprefix("/") or "page.html"
        return Response(self._files[name], media_type=TYPES[name])

    async def events(self, request: Request) -> Response:
        """Send what is to be seen, again and again."""
        return StreamingResponse(self._feed.stream(), media_type="text/event-stream")

    async def evict(self, request: Request) -> Response:
        """Evict a claim."""
        try:
            self._check(request.headers)
            name, id = await _claim_of(request)
            count = await asyncio.to_thread(self._locks.evict, name, id)
        except RequestRefused as error:
            headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else None
            return JSONResponse({"error": str(error)}, error.status, headers)
        except InvalidArgument as error:
            return JSONResponse({"error": str(error)}, 400)
        except LockError as error:
            return JSONResponse({"error": str(error)}, 503)
        if count:
            asked = "?" if request.client is None else request.client.host
            say(f"evicted the claim {id} of {name!r}, asked from {asked}")
        self._feed.look()
        return JSONResponse({"evicted": count})

    def _check(self, headers: Headers) -> None:
        """Let only requests with the token go on, and none from another page: a form can't send such headers."""
        if self._token is None:
            raise RequestRefused(403, "this page is read-only: start interlock serve with a token")
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != headers["host"].lower():
            raise RequestRefused(403, "another site asks for this; open the page itself")
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise RequestRefused(415, "send JSON")
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._token.encode()):
            raise RequestRefused(401, "this is not the token that interlock serve was started with")


async def _claim_of(request: Request) -> tuple[str, str]:
    """Return the name and the id that a request has."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise RequestRefused(413, "too long")
    try:
        given: Any = json.loads(body)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict) or not all(isinstance(given.get(key), str) for key in ("name", "id")):
        raise RequestRefused(400, 'send {"name": …, "id": …}')
    return given["name"], given["id"]


def app_of(locks: Locks, store: str, namespace: str, token: str | None, names: Collection[str]) -> Starlette:
    """Return the application.

    Args:
        locks: the locks whose claims are shown.
        store: what the store is called.
        namespace: of the locks.
        token: allows evictions; None: the page can't evict.
        names: of the host, beside localhost and plain addresses.
    """
    feed = Feed(locks, {"store": store, "namespace": namespace, "token": token is not None})
    page = Page(locks, feed, token)
    routes = [
        Route("/", page.file),
        Route("/page.js", page.file),
        Route("/page.css", page.file),
        Route("/events", page.events),
        Route("/evict", page.evict, methods=["POST"]),
    ]
    app = Starlette(routes=routes, middleware=[Middleware(Guard, names=names)])
    app.state.feed = feed
    return app


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
