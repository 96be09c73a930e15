"""Mixins for view sets and generic views of guarded and of occupied objects."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from django.db import models, router, transaction
from django.utils.crypto import salted_hmac
from rest_framework.request import Request, override_method
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.viewsets import ModelViewSet

from interlock.django.answers import RETRY_AFTER
from interlock.django.guarded import Guarded, StaleObject, state_tag, verify
from interlock.django.occupation import OccupiesObject
from interlock.django.rest.problems import PreconditionFailed, PreconditionRequired, problem_of

if TYPE_CHECKING:
    Base = ModelViewSet[Any]
else:
    Base = object

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
