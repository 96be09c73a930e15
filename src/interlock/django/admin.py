"""The claims in the admin: holders and waiters with their times; users with a permission may evict them."""

from datetime import datetime
from typing import Any, NamedTuple

from django.contrib import admin, messages
from django.contrib.admin.models import DELETION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.db import models
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.timesince import timesince
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from interlock.core.claims import DONE, PENDING, SEPARATOR, USING, ClaimView
from interlock.core.errors import LockError
from interlock.django.conf import DEFAULT
from interlock.django.configured import locks
from interlock.django.models import Claim
from interlock.runtime import clock

REFRESH, CONFIRMED, SELECTED = "refresh", "evict_confirmed", "_selected_action"
INTERVALS = ("2", "5", "30")  # seconds


class Shown(NamedTuple):
    """A claim in the list.

    Attributes:
        namespace: the namespace of its lock.
        view: the claim.
    """

    namespace: str
    view: ClaimView

    @property
    def ago(self) -> str:
        """The time since the claim was made, as text."""
        since = self.view.since or 0.0  # a record has no time
        seconds = max(0.0, clock.time_of_day() - since)
        time = f"{seconds:.0f} s" if seconds < 120 else timesince(datetime.fromtimestamp(since))
        return _("%(time)s ago") % {"time": time}

    def is_wanted(self, query: QueryDict) -> bool:
        """Return True if the claim matches the state and the search text of a page's query."""
        known = "\n".join((self.view.name, self.namespace, self.view.host, self.view.label))
        return query.get("state", "") in ("", self.view.state) and query.get("q", "").lower() in known.lower()


@admin.register(Claim)
class ClaimAdmin(admin.ModelAdmin):  # type: ignore[type-arg] # can't be subscripted at run time
    """Shows the claims of an entry of INTERLOCK; claims can be evicted, but not added, changed or deleted."""

    def get_urls(self) -> list[URLPattern]:
        """Return the URL of the list, the only page."""
        return [path("", self.admin_site.admin_view(self.changelist_view), name="interlock_claim_changelist")]

    def has_change_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        """Return False: no user may change claims, and no page adds or deletes one."""
        return False

    def has_view_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        """Return True for a user who may view claims, or evict them."""
        return super().has_view_permission(request, obj) or self.has_evict_permission(request)

    def has_evict_permission(self, request: HttpRequest) -> bool:
        """Return True for a user who may evict claims; Django's admin asks this for the action."""
        user: Any = request.user
        return bool(user.has_perm("interlock.evict_claim"))

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, object] | None = None) -> HttpResponse:
        """Show the list; `?refresh=5` reloads it every 5 seconds, `?locks=reports` selects an entry of INTERLOCK."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        alias = request.GET.get("locks", DEFAULT)
        alias = alias if alias in locks else DEFAULT
        context = {**self.admin_site.each_context(request), "opts": self.opts, "media": self.media}
        try:
            known = _claims(alias)
        except LockError as error:
            known = []
            self.message_user(request, _("The store failed: %(error)s") % {"error": error}, messages.ERROR)
        if request.method == "POST" and self.has_evict_permission(request):
            chosen = [each for each in known if each.view.id in request.POST.getlist(SELECTED)]
            if request.POST.get(CONFIRMED):
                self._evict(request, alias, chosen)
                return HttpResponseRedirect(request.get_full_path())
            context |= {"title": _("Are you sure?"), "claims": chosen, "selected": SELECTED, "confirmed": CONFIRMED}
            return TemplateResponse(request, "admin/interlock/claim/evict_confirmation.html", context)
        query = request.GET.copy()
        refresh = (query.pop(REFRESH, None) or [""])[-1]
        context |= {
            "title": _("Claims"),
            "claims": [each for each in known if each.is_wanted(request.GET)],
            "aliases": list(locks),
            "chosen": alias,
            "states": {USING: _("Using"), PENDING: _("Pending"), DONE: _("Record")},
            "selected": SELECTED,
            "may_evict": self.has_evict_permission(request),
            "refresh": refresh if refresh in INTERVALS else None,
            "intervals": INTERVALS,
            "wanted": query,
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/interlock/claim/change_list.html", context)

    def _evict(self, request: HttpRequest, alias: str, chosen: list[Shown]) -> None:
        evicted = 0
        try:
            for each in chosen:
                if locks[alias]._client.evict(each.namespace + SEPARATOR + each.view.name, each.view.id):
                    evicted += 1
                    _note(request, each.view)
        except LockError as error:
            self.message_user(request, _("The store failed: %(error)s") % {"error": error}, messages.ERROR)
        level = messages.SUCCESS if evicted else messages.WARNING
        text = ngettext("%(count)d claim was evicted.", "%(count)d claims were evicted.", evicted)
        advice = _("A holder notices within a third of its lease; until then it may work on.")
        self.message_user(request, f"{text % {'count': evicted}} {advice}", level)


def _claims(alias: str) -> list[Shown]:
    made = locks[alias]
    return [
        Shown(namespace, view)
        for namespace in sorted({*made.namespaces(), made.namespace})
        for view in made._client.look(namespace + SEPARATOR)
    ]


def _note(request: HttpRequest, claim: ClaimView) -> None:
    LogEntry.objects.create(
        user_id=request.user.pk,
        content_type_id=ContentType.objects.get_for_model(Claim).pk,
        object_id=claim.id,
        object_repr=f"{claim.name} ({claim.state}, {claim.host} {claim.pid})"[:200],
        action_flag=DELETION,
        change_message=(
            f"Evicted the claim {claim.id} ({claim.state}, fence {claim.fence}) of {claim.name!r} from "
            f"{claim.host}, process {claim.pid}, thread {claim.thread!r}."
        ),
    )
