"""What drf-spectacular writes of the mixins into an OpenAPI schema."""

from typing import Any

from django.utils.translation import gettext as _
from drf_spectacular.extensions import OpenApiViewExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse

from interlock.django.rest.problems import MEDIA_TYPE, ProblemSerializer
from interlock.django.rest.views import GuardedViewSetMixin, OccupiedViewSetMixin


class ProblemSchema(AutoSchema):
    """Adds the answers and headers of the mixins to those that a view has."""

    def _changes(self) -> bool:
        return self.method in ("PUT", "PATCH", "DELETE")

    def _problems(self) -> dict[int, str]:
        """Return the descriptions of the problem documents by their codes."""
        found: dict[int, str] = {}
        if not self._changes():
            return found
        view: Any = self.view
        if isinstance(view, GuardedViewSetMixin):
            if self.method != "DELETE":
                found[409] = _("Somebody else has changed or deleted the object since it was read.")
            if view.etags:
                found[412] = _("The object is not in the state that If-Match names.")
            if view.etags and view.if_match_required:
                found[428] = _("If-Match is lacking.")
        if isinstance(view, OccupiedViewSetMixin):
            found[423] = _("Somebody else is working on this object.")
        return found

    def get_response_serializers(self) -> Any:
        """Return the answers of the view, and the problem documents."""
        found: Any = super().get_response_serializers()
        problems = {
            (code, MEDIA_TYPE): OpenApiResponse(ProblemSerializer, description=description)
            for code, description in self._problems().items()
        }
        if not problems:
            return found
        if not isinstance(found, dict):
            found = {204: None} if self.method == "DELETE" else {200: found}
        return {**found, **problems}

    def get_override_parameters(self) -> Any:
        """Return the parameters and headers of the view, and those of the mixins."""
        found = [*super().get_override_parameters()]
        if isinstance(self.view, GuardedViewSetMixin) and self.view.etags and self.view.detail is not False:
            tag = _("The state of the object.")
            if self._changes():
                found.append(_header("If-Match", tag, required=self.view.if_match_required))
            if self.method != "DELETE":
                found.append(_header("ETag", tag, response=[200]))
        if isinstance(self.view, OccupiedViewSetMixin) and self._changes():
            found.append(_header("Retry-After", _("Seconds."), OpenApiTypes.INT, response=[423]))
        return found


def _header(name: str, description: str, kind: Any = OpenApiTypes.STR, **options: Any) -> OpenApiParameter:
    return OpenApiParameter(name, kind, OpenApiParameter.HEADER, description=description, **options)


class _MixinExtension:
    match_subclasses = True
    # A project's own extension of a view goes first.
    priority = -1
    target: Any

    def view_replacement(self) -> Any:
        """Return the view with a schema that has the mixins' answers too."""
        own = type(self.target.schema)
        if not issubclass(own, AutoSchema) or issubclass(own, ProblemSchema):
            return self.target
        schema = type("ProblemSchema", (ProblemSchema, own), {})()
        return type(self.target.__name__, (self.target,), {"schema": schema, "__module__": self.target.__module__})


class GuardedExtension(_MixinExtension, OpenApiViewExtension):  # type: ignore[no-untyped-call]
    """For guarded views."""

    target_class = GuardedViewSetMixin


class OccupiedExtension(_MixinExtension, OpenApiViewExtension):  # type: ignore[no-untyped-call]
    """For occupied views."""

    target_class = OccupiedViewSetMixin
