"""Errors as problem documents: `application/problem+json`, RFC 9457."""

import copy
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, models
from django.http import Http404
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from rest_framework import serializers, status, views
from rest_framework.exceptions import APIException
from rest_framework.generics import GenericAPIView
from rest_framework.response import Response

from interlock.django.answers import MEDIA_TYPE, RETRY_AFTER, Answer, answer_of
from interlock.django.guarded.conflicts import FieldConflict, StaleObject


class PreconditionFailed(APIException):
    """The object is not in the state that the client's If-Match names."""

    status_code = status.HTTP_412_PRECONDITION_FAILED
    default_detail = gettext_lazy(
        "The object has changed since you have read it. Read it again, and do your change again."
    )
    default_code = "precondition-failed"


class PreconditionRequired(APIException):
    """The client has to say, by If-Match, which state of the object it wants to change."""

    status_code = status.HTTP_428_PRECONDITION_REQUIRED
    default_detail = gettext_lazy("Send the ETag of the object that you have read as If-Match.")
    default_code = "precondition-required"


class ConflictSerializer(serializers.Serializer[Any]):
    """One field that two have changed."""

    original = serializers.JSONField(help_text=gettext_lazy("The value that was read."))
    yours = serializers.JSONField(help_text=gettext_lazy("The value that was to be saved."))
    theirs = serializers.JSONField(help_text=gettext_lazy("The value that somebody else has saved meanwhile."))


class ProblemSerializer(serializers.Serializer[Any]):
    """A problem document (RFC 9457)."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField()
    deleted = serializers.BooleanField(required=False, help_text=gettext_lazy("True if the object is gone."))
    fields_ = serializers.DictField(child=ConflictSerializer(), required=False)

    def get_fields(self) -> dict[str, Any]:
        """Return the fields; one has the name of a method of serializers."""
        found = super().get_fields()
        found["fields"] = found.pop("fields_")
        return found


def exception_handler(exc: Exception, context: dict[str, Any]) -> Response | None:
    """Answer what interlock raises by a problem document, and all else as REST framework does.

    For the setting `EXCEPTION_HANDLER`; the mixins for view sets need no setting.
    """
    return problem_of(exc, context) or views.exception_handler(exc, context)


def problem_of(exc: Exception, context: Mapping[str, object]) -> Response | None:
    """Return the problem document of an exception; None if it isn't one of interlock's."""
    view = context.get("view")
    answer = answer_of(exc, getattr(view, "retry_after", RETRY_AFTER))
    if isinstance(exc, PreconditionFailed | PreconditionRequired):
        title = _("Precondition Failed") if isinstance(exc, PreconditionFailed) else _("Precondition Required")
        answer = Answer(exc.status_code, exc.default_code, title, str(exc.detail))
    if answer is None:
        return None
    members = {"deleted": exc.deleted, "fields": _fields(exc, view)} if isinstance(exc, StaleObject) else {}
    views.set_rollback()
    response = Response(answer.problem() | members, status=answer.status)
    if answer.retry_after is not None:
        response["Retry-After"] = str(answer.retry_after)
    renderer = getattr(context.get("request"), "accepted_renderer", None)
    if renderer is None or renderer.format == "json":
        # The browsable API, or XML, keep their own type.
        response.content_type = MEDIA_TYPE
    return response


def _fields(exc: StaleObject, view: object) -> dict[str, Any]:
    """Return the fields concerned as the view's serializer shows them; what it doesn't show stays hidden."""
    if exc.deleted or not isinstance(view, GenericAPIView):
        return {}
    serializer: Any = view.get_serializer(exc.instance)
    model = getattr(getattr(serializer, "Meta", None), "model", None)
    if model is None or not isinstance(exc.instance, model) or not _may_see(exc.instance, view):
        return {}
    found = {}
    for name, field in serializer.fields.items():
        if not field.write_only and field.source in exc.fields:
            found[name] = _values(field, exc.instance, exc.fields[field.source])
    return found


def _may_see(instance: models.Model, view: GenericAPIView[Any]) -> bool:
    """True if the view would show the row to the client, as it is now."""
    try:
        row = view.filter_queryset(view.get_queryset()).filter(pk=instance.pk).first()
        if row is not None:
            view.check_object_permissions(view.request, row)
    except (APIException, Http404, PermissionDenied, DatabaseError):
        return False
    return row is not None


def _values(field: Any, instance: Any, conflict: FieldConflict) -> dict[str, Any]:
    other, attname = copy.copy(instance), instance._meta.get_field(field.source).attname

    def represented(value: object) -> Any:
        setattr(other, attname, value)
        attribute = field.get_attribute(other)
        # As serializers do: a related object of which only the key is known is nothing if it has none.
        return None if getattr(attribute, "pk", attribute) is None else field.to_representation(attribute)

    values = {"original": conflict.original, "yours": conflict.mine, "theirs": conflict.theirs}
    return {name: represented(value) for name, value in values.items()}
