"""Conflicts and occupied objects as problem documents (RFC 9457), and the mixins of views that raise them."""

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

from interlock.django.answers import MEDIA_TYPE, RETRY_AFTER, Answer, answer_of
from interlock.django.guarded import Guarded, state_tag, verify
from interlock.django.guarded.conflicts import FieldConflict, StaleObject
from interlock.django.occupation import OccupiesObject

if TYPE_CHECKING:
    Base = ModelViewSet[Any]
else:
    Base = object


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


CHANGING = ("PUT", "PATCH", "DELETE")


class ProblemMixin(Base):
    """Answers what interlock raises by problem documents."""

    def get_exception_handler(self) -> Any:
        """Return the function that answers an exception."""
        other = super().get_exception_handler()

        def handler(exc: Exception, context: dict[str, object]) -> Any:
            return problem_of(exc, context) or other(exc, context)

        return handler


class GuardedViewSetMixin(ProblemMixin):
    """A mixin for view sets and generic views of a guarded model; it stands before the other base classes.

    A conflict is answered by 409 with the fields concerned, as the serializer shows them. An object's answers have an
    ETag, of the guarded fields that a GET shows and of all that it shows; a client that sends it as If-Match changes
    the object only while those fields are the same, and is answered by 412 else.

    Attributes:
        etags: whether ETag is sent and If-Match is heeded.
        etag_fields: the names of the model's fields that If-Match heeds; None: those that a GET shows as they are.
        if_match_required: whether a change without If-Match is answered by 428.
    """

    etags: ClassVar[bool] = True
    etag_fields: ClassVar[Sequence[str] | None] = None
    if_match_required: ClassVar[bool] = False

    def get_object(self) -> Any:
        """Return the object, if it is in the state that the client wants to change."""
        instance = super().get_object()
        if self.request.method in CHANGING and self.etags and isinstance(instance, Guarded):
            wanted = self.request.headers.get("If-Match")
            if wanted is None and self.if_match_required:
                raise PreconditionRequired
            if wanted is not None and not _matches(wanted, self._state_of(instance)):
                raise PreconditionFailed
        return instance

    def perform_update(self, serializer: Any) -> None:
        """Save, and if the client has sent If-Match, only while the object is in that state."""
        with self._in_wanted_state(serializer.instance):
            super().perform_update(serializer)

    def perform_destroy(self, instance: Any) -> None:
        """Delete, and if the client has sent If-Match, only while the object is in that state."""
        with self._in_wanted_state(instance):
            super().perform_destroy(instance)

    @contextmanager
    def _in_wanted_state(self, instance: object) -> Iterator[None]:
        """Keep the row locked, as it was read, if the client has sent If-Match."""
        if "If-Match" not in self.request.headers or not self.etags or not isinstance(instance, Guarded):
            yield
            return
        with transaction.atomic(using=router.db_for_write(type(instance), instance=instance)):
            try:
                verify(instance)
            except StaleObject:
                raise PreconditionFailed from None
            yield

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Any:
        """Add the ETag."""
        final: Any = super().finalize_response(request, response, *args, **kwargs)
        serializer = getattr(getattr(final, "data", None), "serializer", None)
        instance = getattr(serializer, "instance", None)
        if self.etags and final.status_code in (200, 201) and isinstance(instance, Guarded):
            final.headers.setdefault("ETag", f'"{self._state_of(instance)}.{self._shown(instance, final.data)}"')
        return final

    def _state_of(self, instance: Guarded) -> str:
        """Return the tag of the fields that If-Match heeds."""
        if self.etag_fields is not None:
            return state_tag(instance, self.etag_fields)
        with _as_get(self):
            serializer = self.get_serializer(instance)
        return state_tag(instance, _shown_fields(serializer, instance))

    def _shown(self, instance: models.Model, data: object) -> str:
        """Return the tag of all that a GET shows, also of other objects."""
        if self.request.method != "GET":
            with _as_get(self):
                data = self.get_serializer(instance).data
        text = json.dumps(data, default=str)
        return salted_hmac("interlock.shown", text, algorithm="sha256").hexdigest()[:32]


class OccupiedViewSetMixin(OccupiesObject, ProblemMixin):
    """A mixin for view sets and generic views that change an object only while they occupy it.

    `update`, `partial_update` and `destroy` take the lock of the object by `interlock.django.occupy`, and read it
    afresh. If another caller has it for longer than `occupy_timeout`, the answer is 423 with Retry-After.

    Attributes:
        occupy_timeout: seconds to wait for the lock; 0: not at all.
        occupy_ttl: the lease in seconds; None: the default of the locks.
        retry_after: seconds after which the client shall try again.
    """

    retry_after: ClassVar[float] = RETRY_AFTER

    def update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Occupy the object and update it, or some of its fields."""
        with self.occupied():
            return super().update(request, *args, **kwargs)

    def destroy(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Occupy the object and delete it."""
        with self.occupied():
            return super().destroy(request, *args, **kwargs)


@contextmanager
def _as_get(view: Any) -> Iterator[None]:
    """Have a view believe that its object is asked for: what it shows then is what a client has read."""
    action = getattr(view, "action", None)
    with override_method(view, view.request, "GET"):
        view.action = "retrieve" if action is not None else None
        yield


def _shown_fields(serializer: Any, instance: models.Model) -> list[str] | None:
    """Return the names of the model's fields that a serializer shows; None if that is not to be known."""
    if not isinstance(serializer, Serializer):
        return None
    names = {name: field.name for field in instance._meta.concrete_fields for name in (field.name, field.attname)}
    sources = [str(field.source).partition(".")[0] for field in serializer.fields.values() if not field.write_only]
    return [names[source] for source in sources if source in names]


def _matches(header: str, state: str) -> bool:
    """True if an If-Match header names a state: the first part of a tag, since the rest may be of other objects.

    A weak tag counts as a strong one, unlike RFC 9110 section 13.1.1 says: the tag is one of the object's state, not
    of the bytes of an answer, and what compresses answers on their way weakens their tags.
    """
    wanted = [each.strip().removeprefix("W/") for each in header.split(",")]
    return "*" in wanted or state in [each.strip('"').partition(".")[0] for each in wanted]
