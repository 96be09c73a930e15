"""The admin of guarded models: a second editor loses no input, and overwrites no change without seeing it."""

from datetime import UTC, datetime
from typing import Any

from django.apps import apps
from django.contrib import admin, messages
from django.contrib.admin.options import BaseModelAdmin, InlineModelAdmin
from django.contrib.admin.utils import flatten_fieldsets, unquote
from django.core.checks import Error
from django.core.exceptions import ObjectDoesNotExist
from django.db import models
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.timesince import timesince
from django.utils.translation import gettext as _

from interlock.core.claims import MAX_LABEL, WRITER_UNITS, Claim, ClaimView, LockSpec, checked_name
from interlock.core.errors import LockError
from interlock.django.configured import locks
from interlock.django.guarded.conflicts import StaleObject
from interlock.django.guarded.forms import READ, SAVE_ATTEMPTS, GuardedModelForm, guarded_form
from interlock.django.row_names import RowName
from interlock.runtime import log
from interlock.runtime.process import fresh_id


class EditedPage:
    """The change page of an object, opened by a user; each open page is a claim.

    If the store is unavailable, the error is logged, and the page is shown without the other editors.

    Args:
        model: the model of the object.
        pk: the primary key of the object.
        user: the user who opened the page.
        lease: seconds after which a user who has not saved is not shown any more.
    """

    def __init__(self, model: type[models.Model], pk: object, user: Any, lease: float) -> None:
        self.name = checked_name(f"editing:{RowName(model, pk).name()}")
        self._lease = lease
        self._user = user
        self._who = f"user {user.pk}"

    def open(self) -> list[ClaimView]:
        """Enter a claim for the user; return the claims of the other users, whose labels are the users' names."""
        try:
            mine, others = self._claims()
            spec = LockSpec(locks._client.key(self.name), 1, WRITER_UNITS, self._lease, str(self._user)[:MAX_LABEL])
            known = [Claim(claim.id, spec, self._who) for claim in mine[:1]]
            queue = locks._client.state().queue
            if not known or not queue.renew(known)[0]:
                queue.enter(Claim(fresh_id(), spec, self._who), None, False, False)
        except LockError as error:
            log.warn("Could not record the editor of %s: %s", self.name, error)
            return []
        return others

    def leave(self) -> None:
        """Remove the claim of the user, who has saved the object."""
        try:
            for claim in self._claims()[0]:
                locks.evict(self.name, claim.id)
        except LockError as error:
            log.warn("Could not remove the editor of %s: %s", self.name, error)

    def _claims(self) -> tuple[list[ClaimView], list[ClaimView]]:
        """Return the user's own claims, and those of others."""
        claims = locks.claims(self.name)
        return [c for c in claims if c.thread == self._who], [c for c in claims if c.thread != self._who]


def _with_read_field(fieldsets: Any, shows_form: bool) -> object:
    """Return the fieldsets with the hidden field at the end of the last one, or without it."""
    kept = [
        (name, {**options, "fields": tuple(field for field in options["fields"] if field != READ)})
        for name, options in fieldsets
    ]
    if shows_form and kept:
        options = kept[-1][1]
        options["fields"] = (*options["fields"], READ)
    return kept


class _GuardsForms(BaseModelAdmin):  # type: ignore[type-arg] # can't be subscripted at run time
    """The common part of `GuardedAdmin` and `GuardedInline`: they guard the forms of the other base classes."""

    def check(self, **kwargs: object) -> Any:
        """Return the findings of Django's checks, and an error if a form hides the form of another base class."""
        return [*super().check(**kwargs), *_problems_of_form(type(self))]

    def get_fieldsets(self, request: HttpRequest, obj: object = None) -> Any:
        """Return the fieldsets, with the hidden field that contains the values which the form has shown."""
        is_guarded = obj is not None or isinstance(self, InlineModelAdmin)  # the form that adds an object is not
        shows_form = is_guarded and self.has_change_permission(request, obj)
        return _with_read_field(super().get_fieldsets(request, obj), shows_form)

    def _own_fields(self, request: HttpRequest, obj: object, kwargs: dict[str, Any]) -> dict[str, object]:
        """Return arguments for Django's form factory, without the hidden field, which the factory does not know."""
        fields = kwargs["fields"] if "fields" in kwargs else flatten_fieldsets(self.get_fieldsets(request, obj))
        named = isinstance(fields, list | tuple)
        return {**kwargs, "fields": [name for name in fields if name != READ] if named else fields}


def _problems_of_form(cls: Any) -> list[Error]:
    """Return an error if the form of an admin class is guarded, but not derived from the form of a base class."""
    return [
        Error(
            f"The form {cls.form.__name__} hides the form {vars(base)['form'].__name__} of {base.__name__}.",
            hint="Leave out `form`: GuardedAdmin and GuardedInline guard the form of the other base class. Or derive "
            f"{cls.form.__name__} from GuardedModelForm and {vars(base)['form'].__name__}.",
            obj=cls,
            id="interlock.E104",
        )
        for base in cls.__mro__
        if "form" in vars(base)
        and issubclass(cls.form, GuardedModelForm)
        and not issubclass(cls.form, vars(base)["form"])
    ][:1]


class GuardedAdmin(_GuardsForms, admin.ModelAdmin):  # type: ignore[type-arg] # can't be subscripted at run time
    """A `ModelAdmin` of a guarded model: on a stale save the page shows both values, and its editor chooses.

    Attributes:
        editing_lease: seconds for which a user who opens a change form is shown as its editor to other users who open
            it, unless they save before. None: editors are not shown.
    """

    editing_lease: float | None = 600.0

    def get_form(self, request: HttpRequest, obj: object = None, change: bool = False, **kwargs: object) -> Any:
        """Return the form class of the other base classes; guard it if it changes an object."""
        form = super().get_form(request, obj, change=change, **self._own_fields(request, obj, kwargs))
        return form if obj is None else guarded_form(form)

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, object] | None = None,
    ) -> Any:
        """Show or save the change form, and name the other users who have it open."""
        for left in reversed(range(SAVE_ATTEMPTS)):
            try:
                response = super().changeform_view(request, object_id, form_url, extra_context)
                break
            except StaleObject:  # the object has changed during the save: check it again
                if not left:
                    raise
        # Outside of the transaction that saves the object, so that the claims do not wait for it.
        if object_id is not None and self.has_change_permission(request):
            self._note_editor(request, unquote(object_id), response)
        return response

    def _note_editor(self, request: HttpRequest, pk: str, response: HttpResponse) -> None:
        if self.editing_lease is None or not apps.is_installed("interlock.django"):
            return
        try:
            shown = EditedPage(self.model, pk, request.user, self.editing_lease)
        except (LockError, ObjectDoesNotExist):
            return  # the URL has no valid primary key
        if response.status_code != 200:
            if request.method == "POST":
                shown.leave()
            return
        for editor in shown.open():
            who = _("Opened by %(name)s %(time)s ago, who may be editing it.") % {
                "name": editor.label,
                "time": timesince(datetime.fromtimestamp(editor.since or 0.0, UTC)),
            }
            advice = _("Nothing gets lost: the second to save is shown both values.")
            self.message_user(request, f"{who} {advice}", messages.WARNING)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, object] | None = None) -> HttpResponse:
        """Show or save the list; if a row changes during the save, nothing is saved, and the list is shown again."""
        try:
            return super().changelist_view(request, extra_context)
        except StaleObject as stale:
            text = _("Nothing was saved: somebody else has just changed “%(object)s”.") % {"object": stale.instance}
            self.message_user(request, text, messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())


class GuardedInline(_GuardsForms, InlineModelAdmin):  # type: ignore[type-arg]
    """A mixin for inlines of a guarded model: `class CopyInline(GuardedInline, admin.TabularInline)`."""

    def get_formset(self, request: HttpRequest, obj: object = None, **kwargs: object) -> Any:
        """Return the formset class of the other base classes, with guarded forms."""
        made: Any = super().get_formset(request, obj, **self._own_fields(request, obj, kwargs))
        return type(made)(made.__name__, (made,), {"form": guarded_form(made.form)})
