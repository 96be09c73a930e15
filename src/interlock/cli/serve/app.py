"""The page, its events, and the one request that changes something."""

import asyncio
import hmac
import json
from collections.abc import Collection
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from interlock import InvalidArgument, LockError, Locks
from interlock.cli.exits import say
from interlock.cli.serve.feed import Feed

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


class RequestRefused(Exception):
    """A request to evict is refused: the status, and what to do."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Guard:
    """Answers only requests for this page by a name that is its own, and adds the headers that browsers obey.

    A name that is none of them is somebody else's that leads here for a moment (DNS rebinding): its page could read
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
        locks: whose claims are shown.
        feed: what is sent to the browsers.
        token: lets somebody evict; None: nobody can.
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
        locks: whose claims are shown.
        store: what the store is called.
        namespace: whose locks they are.
        token: lets somebody evict; None: nobody can.
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
