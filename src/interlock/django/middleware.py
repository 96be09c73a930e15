"""Answers for what interlock raises in plain views: 423, 409 and 503 instead of 500."""

import math
from typing import Any, NamedTuple

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import select_template
from django.utils.translation import gettext as _

from interlock.core.errors import LockLost, LockTimeout, StoreError
from interlock.django.guarded.errors import StaleObject

RETRY_AFTER = 1.0
"""Seconds after which a client shall try again."""


class Answer(NamedTuple):
    """What a client is told.

    Attributes:
        status: of HTTP.
        kind: names the template and the type of the problem document.
        title, detail: for people.
        retry: whether it makes sense to try again by itself.
    """

    status: int
    kind: str
    title: str
    detail: str
    retry: bool


def answer_of(error: BaseException) -> Answer | None:
    """Return what a client is told of an error; None if it isn't one of interlock's."""
    if isinstance(error, StaleObject) and error.deleted:
        return Answer(409, "stale-object", _("Conflict"), _("Somebody else has deleted this meanwhile."), False)
    if isinstance(error, StaleObject):
        detail = _("Somebody else has changed this meanwhile. Nothing was saved; open the page anew.")
        return Answer(409, "stale-object", _("Conflict"), detail, False)
    if isinstance(error, LockLost):
        detail = _("The lock was lost while this was done; somebody else has it now. Nothing was saved.")
        return Answer(409, "lock-lost", _("Conflict"), detail, False)
    if isinstance(error, LockTimeout):
        detail = _("Somebody else is working on this. Try again in a moment.")
        return Answer(423, "locked", _("Locked"), detail, True)
    if isinstance(error, StoreError):
        return Answer(503, "store-error", _("Service Unavailable"), _("The locks can't be reached now."), True)
    return None


class LockErrorMiddleware:
    """Answers LockTimeout by 423, StaleObject and LockLost by 409, StoreError by 503; other errors are left alone.

    A page is rendered from `interlock/error_423.html` (409, 503), or `interlock/error.html`, which projects may
    override; whoever asks for JSON gets a problem document (RFC 9457).

    Attributes:
        retry_after: seconds in the header Retry-After.
    """

    sync_capable = True
    async_capable = True
    retry_after = RETRY_AFTER

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        """Hand the request on."""
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Answer an exception of a view; its transaction was rolled back before."""
        answer = answer_of(exception)
        if answer is None:
            return None
        response = self._as_json(answer) if wants_json(request) else self._as_page(request, answer)
        if answer.retry:
            response["Retry-After"] = str(math.ceil(self.retry_after))
        response["Cache-Control"] = "no-store"
        return response

    def _as_json(self, answer: Answer) -> HttpResponse:
        body = {
            "type": f"urn:problem-type:interlock:{answer.kind}",
            "title": answer.title,
            "status": answer.status,
            "detail": answer.detail,
        }
        return JsonResponse(body, status=answer.status, content_type="application/problem+json")

    def _as_page(self, request: HttpRequest, answer: Answer) -> HttpResponse:
        template = select_template([f"interlock/error_{answer.status}.html", "interlock/error.html"])
        return HttpResponse(template.render({"answer": answer}, request), status=answer.status)


def wants_json(request: HttpRequest) -> bool:
    """True if a client sends or asks for JSON, and doesn't ask for a page."""
    accept = request.headers.get("Accept", "")
    if "text/html" in accept:
        return False
    return "json" in accept or "json" in (request.content_type or "")
