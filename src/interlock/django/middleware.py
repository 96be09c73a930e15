"""Responses for interlock's errors: one table for pages and REST framework; 423, 409, 422 and 503 instead of 500."""

import math
from typing import Any, NamedTuple

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import select_template
from django.utils.deprecation import MiddlewareMixin
from django.utils.translation import gettext as _

from interlock.core.errors import LockLost, LockTimeout, PayloadMismatch, StoreError
from interlock.django.guarded.conflicts import StaleObject

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 1.0
"""The default of Retry-After, in seconds; a middleware or a view may set another."""


class Answer(NamedTuple):
    """The response for an error.

    Attributes:
        status: the HTTP status.
        kind: the type of the problem document.
        title, detail: texts for people.
        retry_after: whole seconds after which the client may retry automatically; None if it should not.
    """

    status: int
    kind: str
    title: str
    detail: str
    retry_after: int | None = None

    def problem(self) -> dict[str, Any]:
        """Return the body of the problem document."""
        return {
            "type": f"urn:problem-type:interlock:{self.kind}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
        }

    def headers(self) -> dict[str, str]:
        """Return the headers that the response needs besides those of its content."""
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}


def answer_of(error: BaseException, retry_after: float = RETRY_AFTER_SECONDS) -> Answer | None:
    """Return the response for an error; None if it isn't one of interlock's.

    Args:
        error: the exception that a view raised.
        retry_after: seconds for the header Retry-After, if a retry may help.
    """
    seconds = math.ceil(retry_after)
    again = _("Try again in %(seconds)d s.") % {"seconds": seconds}
    if isinstance(error, StaleObject):
        detail = _(
            "Somebody else has changed this meanwhile. Nothing was saved; read it again, and do your change again."
        )
        if error.deleted:
            detail = _("Somebody else has deleted this meanwhile.")
        return Answer(409, "stale-object", _("Conflict"), detail)
    if isinstance(error, LockLost):
        detail = _("The lock was lost while this was done; somebody else has it now. Nothing was saved.")
        return Answer(409, "lock-lost", _("Conflict"), detail)
    if isinstance(error, LockTimeout):
        detail = (
            _("Somebody else holds the lock “%(name)s”.") % {"name": error.name}
            if getattr(error, "named", False)
            else _("Somebody else is working on this object.")
        )
        return Answer(423, "locked", _("Locked"), f"{detail} {again}", seconds)
    if isinstance(error, PayloadMismatch):
        detail = _("This key was used for another request. Repeat that request unchanged, or choose a new key.")
        return Answer(422, "payload-mismatch", _("Unprocessable Content"), detail)
    if isinstance(error, StoreError):
        detail = _("The locks can't be reached now.")
        return Answer(503, "store-error", _("Service Unavailable"), f"{detail} {again}", seconds)
    return None


class LockErrorMiddleware(MiddlewareMixin):
    """Answers LockTimeout with 423, StaleObject and LockLost with 409, PayloadMismatch with 422, StoreError with 503.

    Other errors are ignored.  A page is rendered from `interlock/error_423.html` (409, 422, 503), or
    `interlock/error.html`, which projects may override; a client that asks for JSON gets a problem document (RFC
    9457).

    Attributes:
        retry_after: seconds in the header Retry-After.
    """

    retry_after = RETRY_AFTER_SECONDS

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Return the response for an exception of a view; its transaction is rolled back already."""
        answer = answer_of(exception, self.retry_after)
        if answer is None:
            return None
        how: dict[str, Any] = {"status": answer.status, "headers": {**answer.headers(), "Cache-Control": "no-store"}}
        if wants_json(request):
            return JsonResponse(answer.problem(), content_type=MEDIA_TYPE, **how)
        page = select_template([f"interlock/error_{answer.status}.html", "interlock/error.html"])
        return HttpResponse(page.render({"answer": answer}, request), **how)


def wants_json(request: HttpRequest) -> bool:
    """Return True if a client sends or accepts JSON, and does not ask for an HTML page."""
    accept = request.headers.get("Accept", "")
    return "text/html" not in accept and "json" in f"{accept} {request.content_type}"
