"""The page, its events, its one request for evictions, and the server."""

import asyncio
import hmac
import math
import socket
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Collection, Mapping
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from interlock import InvalidArgument, LockError, Locks
from interlock.cli import output
from interlock.cli.exit_codes import say

MAX_OPEN_CONNECTIONS = 100  # connections; if there are more, the connection with the oldest reply is closed
MOST_REQUESTS = 1000  # concurrent requests, also of closed connections; the server refuses more
IO_TIMEOUT = 1  # seconds that an end waits for a client that does not read
REFRESH_INTERVAL = 0.9  # seconds between two looks at the store; the page asks once a second
MOST_EVICTIONS = 20  # that are shown, the newest first
MOST_CLAIMS = 1000  # that are sent; a browser with more is slow
FILES = Path(__file__).parent / "page"
STRANGE = "This host name is not allowed. Pass it to interlock serve with --allow-host.\n"
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


class Guard:
    """Answers only requests for this page by a name that is its own, and adds the headers that browsers obey.

    Any other name is foreign and leads here for a moment (DNS rebinding): the foreign page could read this page.
    An attacker cannot use a plain address for that.
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
            return name in self._names or bool(ip_address(name))
        except ValueError:
            return False


class Page:
    """The answers to requests.

    Args:
        locks: the locks whose claims are shown.
        facts: go with each look.
        token: allows evictions; None: the page can't evict.
    """

    def __init__(self, locks: Locks, facts: Mapping[str, object], token: str | None) -> None:
        self._locks = locks
        self._facts = facts
        self._token = token
        self._mutex = threading.Lock()
        self._latest: dict[str, object] = {}
        self._looked_at = -math.inf
        self._evictions: deque[dict[str, str | None]] = deque(maxlen=MOST_EVICTIONS)

    def look(self, request: Request) -> Response:
        """Send what there is to see; all viewers share one look at the store a second."""
        with self._mutex:
            if time.monotonic() > self._looked_at + REFRESH_INTERVAL:
                self._latest = {**self._facts, "time": output.iso(time.time()), **self._seen()}
                self._looked_at = time.monotonic()
            return JSONResponse(self._latest)

    def _seen(self) -> dict[str, Any]:
        try:
            views = list(self._locks.claims())
        except LockError as error:
            return {"error": str(error)}
        shown = output.lines_of(views[:MOST_CLAIMS])
        return {
            "locks": [output.line_json(line) for line in shown],
            "hidden": max(0, len(views) - MOST_CLAIMS),
            "evictions": list(self._evictions),
        }

    async def evict(self, request: Request) -> Response:
        """Evict a claim."""
        self._check(request.headers)
        name, id = await _claim_of(request)
        by = "?" if request.client is None else request.client.host
        count = await asyncio.to_thread(self._evict, name, id, by)
        self._looked_at = -math.inf
        return JSONResponse({"evicted": count})

    def _evict(self, name: str, id: str, by: str) -> int:
        """Evict a claim; return 1 if it was there.

        Args:
            name: the lock's name.
            id: the claim's id.
            by: the address of the caller.
        """
        who = id
        with suppress(LockError):  # if the look fails, the eviction may still succeed
            who = next((output.process_of(view) for view in self._locks.claims(name) if view.id == id), id)
        count = self._locks.evict(name, id)
        if count:
            say(f"Evicted claim {id} of {name!r} at the request of {by}.")
            self._evictions.appendleft({"time": output.iso(time.time()), "name": name, "claim": who, "by": by})
        return count

    def _check(self, headers: Headers) -> None:
        """Accept only requests with the token from this page; a form cannot send such headers."""
        if self._token is None:
            raise HTTPException(403, "This page is read-only. Start interlock serve with a token.")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != headers["host"].lower():
            raise HTTPException(403, "The request comes from another site. Open the page itself.")
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise HTTPException(415, "Send JSON.")
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._token.encode()):
            raise HTTPException(401, "Wrong token. Use the token of interlock serve.", {"WWW-Authenticate": "Bearer"})


async def _claim_of(request: Request) -> tuple[str, str]:
    """Return the name and the id in a request."""
    try:
        given: object = await request.json()
    except (ValueError, RecursionError, ClientDisconnect):
        given = None
    if not isinstance(given, dict) or not all(isinstance(given.get(key), str) for key in ("name", "id")):
        raise HTTPException(400, 'Send {"name": …, "id": …}.')
    return given["name"], given["id"]


def _refused(request: Request, error: Exception) -> Response:
    """Answer a request that failed."""
    if isinstance(error, HTTPException):
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)
    return JSONResponse({"error": str(error)}, 400 if isinstance(error, InvalidArgument) else 503)


def app_of(locks: Locks, store: str, namespace: str, token: str | None, names: Collection[str]) -> Starlette:
    """Return the application.

    Args:
        locks: the locks whose claims are shown.
        store: the name of the store.
        namespace: the namespace of the locks.
        token: the token for evictions; None if the page cannot evict.
        names: the host names of the page, besides localhost and plain addresses.
    """
    page = Page(locks, {"store": store, "namespace": namespace, "token": token is not None}, token)
    routes = [
        Route("/look", page.look),
        Route("/evict", page.evict, methods=["POST"]),
        Mount("/", StaticFiles(directory=FILES, html=True)),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, names=names)],
        exception_handlers={HTTPException: _refused, LockError: _refused},
    )


class PageConnection(H11Protocol):
    """A connection; clients that send incomplete requests cannot lock others out.

    Attributes:
        open: the connections, the one with the oldest reply first.
    """

    open: ClassVar[OrderedDict[H11Protocol, None]] = OrderedDict()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # so does uvicorn
        """Close the oldest connection if there are too many."""
        super().connection_made(transport)
        self.open[self] = None
        if len(self.open) > MAX_OPEN_CONNECTIONS:
            # Removed now, because more may connect before the loop calls `connection_lost`.
            oldest, _ = self.open.popitem(last=False)
            oldest.transport.abort()

    def on_response_complete(self) -> None:
        """Mark this connection as the one with the latest reply."""
        super().on_response_complete()
        if self in self.open:
            self.open.move_to_end(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.open.pop(self, None)
        super().connection_lost(exc)


class PageServer(uvicorn.Server):
    """uvicorn, without dying by the signal that ends it."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End soon; end immediately at a second signal."""
        self.force_exit = self.should_exit
        self.should_exit = True


def run(app: Starlette, listening: socket.socket) -> None:
    """Serve until a signal arrives."""
    config = uvicorn.Config(
        app,
        loop="asyncio",
        http=PageConnection,
        ws="none",
        lifespan="off",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_REQUESTS,
        timeout_graceful_shutdown=IO_TIMEOUT,
    )
    asyncio.run(PageServer(config).serve([listening]))
