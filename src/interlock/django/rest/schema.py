"""The responses and headers of the mixins, for the OpenAPI schema of drf-spectacular."""

from collections.abc import Sequence
from typing import Any

from django.utils.translation import gettext as _
from drf_spectacular.extensions import OpenApiViewExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse

from interlock.django.middleware import MEDIA_TYPE
from interlock.django.rest.views import (
    CHANGING,
    GuardedViewSetMixin,
    OccupiedViewSetMixin,
    ProblemMixin,
    ProblemSerializer,
)


class ProblemSchema(AutoSchema):
    """Adds the responses and headers of the mixins to those of a view."""

    def get_response_serializers(self) -> Any:
        """Return the responses of the view, and the problem documents."""
        found: object = super().get_response_serializers()
        if self.method not in CHANGING:
            return found
        view: Any = self.view
        guarded = isinstance(view, GuardedViewSetMixin)
        tagged = guarded and view.etags
        problems = (
            (
                409,
                guarded and self.method != "DELETE",
                _("Somebody else has changed or deleted the object since it was read."),
            ),
            (412, tagged, _("The object is not in the state that If-Match names.")),
            (428, tagged and view.if_match_required, _("If-Match is lacking.")),
            (423, isinstance(view, OccupiedViewSetMixin), _("Somebody else is working on this object.")),
        )
        if not isinstance(found, dict):
            found = {204: None} if self.method == "DELETE" else {200: found}
        return found | {
            (code, MEDIA_TYPE): OpenApiResponse(ProblemSerializer, description=text)
            for code, answers, text in problems
            if answers
        }

    def get_override_parameters(self) -> Any:
        """Return the parameters and headers of the view, and those of the mixins."""
        found = [*super().get_override_parameters()]
        if isinstance(self.view, GuardedViewSetMixin) and self.view.etags and self.view.detail is not False:
            tag = _("The state of the object.")
            if self.method in CHANGING:
                found.append(_header("If-Match", tag, required=self.view.if_match_required))
            if self.method != "DELETE":
                found.append(_header("ETag", tag, response=[200]))
        if isinstance(self.view, OccupiedViewSetMixin) and self.method in CHANGING:
            found.append(_header("Retry-After", _("Seconds."), OpenApiTypes.INT, response=[423]))
        return found


def _header(
    name: str,
    description: str,
    kind: OpenApiTypes = OpenApiTypes.STR,
    required: bool = False,
    response: Sequence[int] | bool = False,
) -> OpenApiParameter:
    return OpenApiParameter(
        name, kind, OpenApiParameter.HEADER, description=description, required=required, response=response
    )


class MixinExtension(OpenApiViewExtension):  # type: ignore[no-untyped-call]
    """For views with a mixin."""

    target_class = ProblemMixin
    match_subclasses = True
    # A project's own extension of a view has precedence.
    priority = -1

    def view_replacement(self) -> Any:
        """Return the view with a schema that includes the mixins' responses."""
        own = type(self.target.schema)
        if not issubclass(own, AutoSchema) or issubclass(own, ProblemSchema):
            return self.target
        schema = type("ProblemSchema", (ProblemSchema, own), {})()
        return type(self.target.__name__, (self.target,), {"schema": schema, "__module__": self.target.__module__})
