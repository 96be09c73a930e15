"""Mixins for class-based views that change one object: occupy it during the change, or use a guarded form.

class BookUpdate(OccupiedUpdateView, GuardedUpdateView, UpdateView): ...
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse

from interlock.django.guarded import Guarded, StaleObject
from interlock.django.guarded.forms import SAVE_ATTEMPTS, guarded_form
from interlock.django.row_lock import OccupiesObject

if TYPE_CHECKING:
    from django.views.generic import UpdateView

    Base = UpdateView[Any, Any]
else:
    Base = object


class GuardedUpdateView(Base):
    """A mixin for an `UpdateView` of a guarded model: its form is a `GuardedModelForm`.

    A field that the user has not changed keeps its present value; for one that both have changed, the page shows both
    values.
    """

    def get_form_class(self) -> Any:
        """Return the class of the form, made a `GuardedModelForm`."""
        made = super().get_form_class()
        if not issubclass(made._meta.model, Guarded):
            raise ImproperlyConfigured(
                f"{type(self).__name__}: {made._meta.model.__name__} is not Guarded. Use a Guarded model."
            )
        return guarded_form(made)

    def form_valid(self, form: Any) -> HttpResponse:
        """Save; if the object changes during the save, clean the form again, and show it if it has conflicts."""
        for _again in range(SAVE_ATTEMPTS - 1):
            try:
                return super().form_valid(form)
            except StaleObject:
                form.recheck()
                if form.errors:
                    return self.form_invalid(form)
        return super().form_valid(form)


class OccupiedUpdateView(OccupiesObject, Base):
    """A mixin for views of one object: a request that changes the object occupies it before it is read.

    Attributes:
        occupy_timeout: seconds to wait for the lock; then `LockTimeout` is raised, which `LockErrorMiddleware`
            answers.
        occupy_ttl: the lease in seconds; None for the default of the locks.
    """

    def post(self, request: HttpRequest, *args: object, **kwargs: object) -> Any:
        """Occupy the object, and run the view's own `post`, which reads the object again."""
        with self.occupied():
            return super().post(request, *args, **kwargs)

    @property
    def delete(self) -> Callable[..., object]:
        """Occupy the object, and run the view's own `delete`; missing if the view has none."""
        delete = super().delete  # type: ignore[misc] # of a DeleteView

        def occupy_and_delete(*args: object, **kwargs: object) -> object:
            with self.occupied():
                return delete(*args, **kwargs)

        return occupy_and_delete
