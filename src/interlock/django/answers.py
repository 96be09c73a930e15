"""The HTTP responses for interlock's errors: one table for pages and for REST framework."""

import math
from typing import Any, NamedTuple

from django.utils.translation import gettext as _

from interlock.core.errors import LockLost, LockTimeout, StoreError
from interlock.django.guarded.conflicts import StaleObject

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER = 1.0
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


def answer_of(error: BaseException, retry_after: float = RETRY_AFTER) -> Answer | None:
    """Return the response for an error; None if it isn't one of interlock's.

    Args:
        error: the exception that a view raised.
        retry_after: seconds for the header Retry-After, if a retry may help.
    """
    seconds = math.ceil(retry_after)
    again = _("Try again in %(seconds)d s.") % {"seconds": seconds}
    if isinstance(error, StaleObject):
        changed = _(
            "Somebody else has changed this meanwhile. Nothing was saved; read it again, and do your change again."
        )
        detail = _("Somebody else has deleted this meanwhile.") if error.deleted else changed
        return Answer(409, "stale-object", _("Conflict"), detail)
    if isinstance(error, LockLost):
        detail = _("The lock was lost while this was done; somebody else has it now. Nothing was saved.")
        return Answer(409, "lock-lost", _("Conflict"), detail)
    if isinstance(error, LockTimeout):
        detail = _("Somebody else is working on this object.") + " " + again
        return Answer(423, "locked", _("Locked"), detail, seconds)
    if isinstance(error, StoreError):
        detail = _("The locks can't be reached now.") + " " + again
        return Answer(503, "store-error", _("Service Unavailable"), detail, seconds)
    return None
