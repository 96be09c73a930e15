"""Responses for interlock's errors in plain views: 423, 409 and 503 instead of 500."""

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import select_template

from interlock.django.answers import MEDIA_TYPE, RETRY_AFTER, answer_of


class LockErrorMiddleware:
    """Answers LockTimeout with 423, StaleObject and LockLost with 409, StoreError with 503; ignores other errors.

    A page is rendered from `interlock/error_423.html` (409, 503), or `interlock/error.html`, which projects may
    override; a client that asks for JSON gets a problem document (RFC 9457).

    Attributes:
        retry_after: seconds in the header Retry-After.
    """

    sync_capable = True
    async_capable = True
    retry_after = RETRY_AFTER

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        """Pass the request on."""
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Return the response for an exception of a view; its transaction is rolled back already."""
        answer = answer_of(exception, self.retry_after)
        if answer is None:
            return None
        if wants_json(request):
            response: HttpResponse = JsonResponse(answer.problem(), status=answer.status, content_type=MEDIA_TYPE)
        else:
            page = select_template([f"interlock/error_{answer.status}.html", "interlock/error.html"])
            response = HttpResponse(page.render({"answer": answer}, request), status=answer.status)
        if answer.retry_after is not None:
            response["Retry-After"] = str(answer.retry_after)
        response["Cache-Control"] = "no-store"
        return response


def wants_json(request: HttpRequest) -> bool:
    """Return True if a client sends or accepts JSON, and does not ask for an HTML page."""
    accept = request.headers.get("Accept", "")
    if "text/html" in accept:
        return False
    return "json" in accept or "json" in (request.content_type or "")
