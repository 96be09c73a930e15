"""Django REST framework: responses for conflicts and occupied objects, and mixins for views."""

from importlib.util import find_spec

from interlock.django.rest.views import (
    GuardedViewSetMixin,
    OccupiedViewSetMixin,
    PreconditionFailed,
    PreconditionRequired,
    ProblemSerializer,
    exception_handler,
)

if find_spec("drf_spectacular") is not None:
    from interlock.django.rest import schema as schema  # its import registers the mixins with drf-spectacular

__all__ = [
    "GuardedViewSetMixin",
    "OccupiedViewSetMixin",
    "PreconditionFailed",
    "PreconditionRequired",
    "ProblemSerializer",
    "exception_handler",
]
