"""Problem documents (RFC 9457) for conflicts and occupied objects, and the mixins of views that return them."""

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, models, router, transaction
from django.http import Http404
from django.utils.crypto import salted_hmac
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from rest_framework import serializers, status, views
from rest_framework.exceptions import APIException
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request, override_method
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.viewsets import ModelViewSet

from interlock.django.guarded import Guarded, state_tag, verify
from interlock.django.guarded.conflicts import FieldConflict, StaleObject
from interlock.django.middleware import MEDIA_TYPE, RETRY_AFTER_SECONDS, Answer, answer_of
from interlock.django.row_lock import OccupiesObject

if TYPE_CHECKING:
    Base = ModelViewSet[Any]
else:
    Base = object


class PreconditionFailed(APIException):
    """The object is not in the state of the client's If-Match."""

    status_code = status.HTTP_412_PRECONDITION_FAILED
    default_detail = gettext_lazy(
        "The object has changed since you have read it. Read it again, and do your change again."
    )
    default_code = "precondition-failed"


class PreconditionRequired(APIException):
    """The client must send If-Match with the state of the object that it wants to change."""

    status_code = status.HTTP_428_PRECONDITION_REQUIRED
    default_detail = gettext_lazy("Send the ETag of the object that you have read as If-Match.")
    default_code = "precondition-required"


class ConflictSerializer(serializers.Serializer[Any]):
    """One field that two writers have changed."""

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
    # This does not replace the property `fields`: the metaclass of serializers moves it to the declared fields.
    fields = serializers.DictField(child=ConflictSerializer(), required=False)  # type: ignore[assignment]


def exception_handler(exc: Exception, context: dict[str, object]) -> Response | None:
    """Answer interlock's errors with a problem document, and all others as REST framework does.

    For the setting `EXCEPTION_HANDLER`; the mixins for view sets do not need it.
    """
    return problem_of(exc, context) or views.exception_handler(exc, context)


def problem_of(exc: Exception, context: Mapping[str, object]) -> Response | None:
    """Return the problem document of an exception; None if it isn't one of interlock's."""
    view = context.get("view")
    answer = answer_of(exc, getattr(view, "retry_after", RETRY_AFTER_SECONDS))
    if isinstance(exc, PreconditionFailed | PreconditionRequired):
        title = _("Precondition Failed") if isinstance(exc, PreconditionFailed) else _("Precondition Required")
        answer = Answer(exc.status_code, exc.default_code, title, str(exc.detail))
    if answer is None:
        return None
    members = {"deleted": exc.deleted, "fields": _fields(exc, view)} if isinstance(exc, StaleObject) else {}
    views.set_rollback()
    # The media type only for JSON: the browsable API and XML keep their own content type.
    renderer = getattr(context.get("request"), "accepted_renderer", None)
    kind = MEDIA_TYPE if renderer is None or renderer.format == "json" else None
    return Response(answer.problem() | members, answer.status, headers=answer.headers(), content_type=kind)


def _fields(exc: StaleObject, view: object) -> dict[str, object]:
    """Return the conflicting fields as the view's serializer shows them, without those that it does not show."""
    if exc.deleted or not isinstance(view, GenericAPIView):
        return {}
    serializer: Any = view.get_serializer(exc.instance)
    model = getattr(getattr(serializer, "Meta", None), "model", None)
    if model is None or not isinstance(exc.instance, model) or not _may_see(exc.instance, view):
        return {}
    return {
        name: _values(field, exc.instance, exc.fields[field.source])
        for name, field in serializer.fields.items()
        if not field.write_only and field.source in exc.fields
    }


def _may_see(instance: models.Model, view: GenericAPIView[Any]) -> bool:
    """Return True if the view would show the present row to the client."""
    try:
        row = view.filter_queryset(view.get_queryset()).filter(pk=instance.pk).first()
        if row is not None:
            view.check_object_permissions(view.request, row)
    except (APIException, Http404, PermissionDenied, DatabaseError):
        return False
    return row is not None


def _values(field: Any, instance: Any, conflict: FieldConflict) -> dict[str, object]:
    other, attname = copy.copy(instance), instance._meta.get_field(field.source).attname

    def represented(value: object) -> object:
        setattr(other, attname, value)
        attribute = field.get_attribute(other)
        # As in serializers: a related object without a primary key is shown as null.
        return None if getattr(attribute, "pk", attribute) is None else field.to_representation(attribute)

    return {
        "original": represented(conflict.original),
        "yours": represented(conflict.mine),
        "theirs": represented(conflict.theirs),
    }


CHANGING = ("PUT", "PATCH", "DELETE")


class ProblemMixin(Base):
    """Answers interlock's errors with problem documents."""

    def get_exception_handler(self) -> Any:
        """Return the function that handles exceptions."""
        other = super().get_exception_handler()
        return lambda exc, context: problem_of(exc, context) or other(exc, context)


class GuardedViewSetMixin(ProblemMixin):
    """A mixin for view sets and generic views of a guarded model; put it before the other base classes.

    A conflict is answered with 409 and the conflicting fields, as the serializer shows them. Responses with an object
    have an ETag, of the guarded fields that a GET shows and of the whole representation. A client that sends it as
    If-Match changes the object only while those fields are unchanged; otherwise the response is 412.

    Attributes:
        etags: True to send ETag and check If-Match.
        etag_fields: the names of the model's fields that If-Match compares; None for those that a GET shows
            unchanged.
        if_match_required: True to answer a change without If-Match with 428.
    """

    etags: ClassVar[bool] = True
    etag_fields: ClassVar[Sequence[str] | None] = None
    if_match_required: ClassVar[bool] = False

    def get_object(self) -> object:
        """Return the object, if it is in the state of the client's If-Match."""
        instance = super().get_object()
        # For the metadata of OPTIONS, REST framework calls this as if for a PUT.
        changes = self.request.method in CHANGING and self.request.META["REQUEST_METHOD"] != "OPTIONS"
        if changes and self.etags and isinstance(instance, Guarded):
            wanted = self.request.headers.get("If-Match")
            if wanted is None and self.if_match_required:
                raise PreconditionRequired
            if wanted is not None and not _matches(wanted, self._state_of(instance)):
                raise PreconditionFailed
        return instance

    def perform_update(self, serializer: Any) -> None:
        """Save; if the client has sent If-Match, only while the object is in that state."""
        with self._in_wanted_state(serializer.instance):
            super().perform_update(serializer)

    def perform_destroy(self, instance: object) -> None:
        """Delete; if the client has sent If-Match, only while the object is in that state."""
        with self._in_wanted_state(instance):
            super().perform_destroy(instance)

    @contextmanager
    def _in_wanted_state(self, instance: object) -> Iterator[None]:
        """If the client has sent If-Match, lock the row and check that it is unchanged since it was read."""
        if "If-Match" not in self.request.headers or not self.etags or not isinstance(instance, Guarded):
            yield
            return
        with transaction.atomic(using=router.db_for_write(type(instance), instance=instance)):
            try:
                verify(instance)
            except StaleObject:
                raise PreconditionFailed from None
            yield

    def finalize_response(self, request: Request, response: Response, *args: object, **kwargs: object) -> Any:
        """Add the ETag to the response."""
        final: Any = super().finalize_response(request, response, *args, **kwargs)
        serializer = getattr(getattr(final, "data", None), "serializer", None)
        instance = getattr(serializer, "instance", None)
        if self.etags and final.status_code in (200, 201) and isinstance(instance, Guarded):
            final.headers.setdefault("ETag", f'"{self._state_of(instance)}.{self._shown(instance, final.data)}"')
        return final

    def _state_of(self, instance: Guarded) -> str:
        """Return the tag of the fields that If-Match compares."""
        if self.etag_fields is not None:
            return state_tag(instance, self.etag_fields)
        with _as_get(self):
            serializer = self.get_serializer(instance)
        return state_tag(instance, _shown_fields(serializer, instance))

    def _shown(self, instance: models.Model, data: object) -> str:
        """Return the tag of the whole representation of a GET, which may contain other objects."""
        if self.request.method != "GET":
            with _as_get(self):
                data = self.get_serializer(instance).data
        return salted_hmac("interlock.shown", json.dumps(data, default=str), algorithm="sha256").hexdigest()[:32]


class OccupiedViewSetMixin(OccupiesObject, ProblemMixin):
    """A mixin for view sets and generic views that change an object only while they occupy it.

    `update`, `partial_update` and `destroy` take the lock of the object by `interlock.django.occupy`, and read it
    again. If another caller holds it for longer than `occupy_timeout`, the response is 423 with Retry-After.

    Attributes:
        occupy_timeout: seconds to wait for the lock; 0 for one try.
        occupy_ttl: the lease in seconds; None for the default of the locks.
        retry_after: seconds in the header Retry-After.
    """

    retry_after: ClassVar[float] = RETRY_AFTER_SECONDS

    def update(self, request: Request, *args: object, **kwargs: object) -> Response:
        """Occupy the object and update it, or some of its fields."""
        with self.occupied():
            return super().update(request, *args, **kwargs)

    def destroy(self, request: Request, *args: object, **kwargs: object) -> Response:
        """Occupy the object and delete it."""
        with self.occupied():
            return super().destroy(request, *args, **kwargs)


@contextmanager
def _as_get(view: Any) -> Iterator[None]:
    """Let a view serialize as for a GET, because the client's ETag is of a GET's representation."""
    action = getattr(view, "action", None)
    with override_method(view, view.request, "GET"):
        view.action = "retrieve" if action is not None else None
        yield


def _shown_fields(serializer: object, instance: models.Model) -> list[str] | None:
    """Return the names of the model's fields that a serializer shows; None if they can't be determined."""
    if not isinstance(serializer, Serializer):
        return None
    names = {name: field.name for field in instance._meta.concrete_fields for name in (field.name, field.attname)}
    sources = [str(field.source).partition(".")[0] for field in serializer.fields.values() if not field.write_only]
    return [names[source] for source in sources if source in names]


def _matches(header: str, state: str) -> bool:
    """Return True if an If-Match header contains a state: the first part of a tag; the rest may be of other objects.

    A weak tag counts as a strong one, contrary to RFC 9110 section 13.1.1: the tag identifies the object's state, not
    the bytes of a response, and proxies that compress responses make their tags weak.
    """
    wanted = [each.strip().removeprefix("W/") for each in header.split(",")]
    return "*" in wanted or state in [each.strip('"').partition(".")[0] for each in wanted]
