"""Django REST framework: conflicts and occupied objects as answers that clients understand."""

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
    from interlock.django.rest import schema as schema  # tells drf-spectacular of the mixins by being imported

__all__ = [
    "GuardedViewSetMixin",
    "OccupiedViewSetMixin",
    "PreconditionFailed",
    "PreconditionRequired",
    "ProblemSerializer",
    "exception_handler",
]
