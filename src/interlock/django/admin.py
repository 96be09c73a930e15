"""The claims in the admin: who holds, who waits, since when; evict with a permission, noted in the log."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin import helpers
from django.contrib.admin.models import DELETION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db.models import F
from django.db.models.query import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.timesince import timesince
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from interlock.core.claims import DONE, PENDING, SEPARATOR, USING, WRITER_UNITS
from interlock.core.errors import LockError
from interlock.django.claimlines import began
from interlock.django.conf import orm_aliases
from interlock.django.models import Claim
from interlock.django.statements import MICROSECONDS
from interlock.django.store import OrmStore
from interlock.runtime.sync import run

REFRESH = "refresh"
CONFIRMED = "evict_confirmed"
INTERVALS = (2, 5, 30)  # seconds


class StateFilter(admin.SimpleListFilter):
    """Holders or waiters; those that are over are not shown."""

    title = gettext_lazy("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Sequence[tuple[str, str]]:
        """Return the choices."""
        return [(USING, _("Using")), (PENDING, _("Pending"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Filter."""
        if self.value() == USING:
            return queryset.filter(state=USING)
        return queryset.exclude(state=USING) if self.value() == PENDING else queryset


class KindFilter(admin.SimpleListFilter):
    """The kinds of locks."""

    title = gettext_lazy("kind")
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Sequence[tuple[str, str]]:
        """Return the choices."""
        return [("exclusive", _("exclusive")), ("rw", _("reader or writer")), ("semaphore", _("semaphore"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Filter."""
        if self.value() == "exclusive":
            return queryset.filter(capacity=1)
        if self.value() == "rw":
            return queryset.filter(capacity=WRITER_UNITS)
        return queryset.filter(capacity__gt=1).exclude(capacity=WRITER_UNITS) if self.value() else queryset


@admin.register(Claim)
class ClaimAdmin(admin.ModelAdmin):  # type: ignore[type-arg] # can't be subscripted at run time
    """Shows the claims of the ORM store; nothing can be added, changed or deleted, only evicted."""

    list_display = (
        "name",
        "namespace",
        "state",
        "kind",
        "holder",
        "thread",
        "label",
        "held_since",
        "expires",
        "fence",
    )
    list_filter = (StateFilter, KindFilter, "host")
    search_fields = ("name", "namespace", "host", "label")
    ordering = ("name", "number")
    actions = ("evict",)
    list_per_page = 200

    def get_queryset(self, request: HttpRequest) -> QuerySet[Claim]:
        """Return the claims that are not over, from the database of the store."""
        alias = orm_alias()
        rows = Claim.objects.all() if alias is None else Claim.objects.using(alias)
        # One whose lease has ended is over, whoever will remove it.
        alive = rows.exclude(state=DONE).filter(until__gt=began()).order_by(*self.get_ordering(request))
        return alive.annotate(left=F("until") - began())

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody adds claims."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody changes claims."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody deletes claims; they are evicted."""
        return False

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may evict may look."""
        return super().has_view_permission(request, obj) or self.has_evict_permission(request)

    def has_evict_permission(self, request: HttpRequest) -> bool:
        """The permission of the action."""
        user: Any = request.user
        return bool(user.has_perm("interlock.evict_claim"))

    @admin.display(description=gettext_lazy("kind"))
    def kind(self, claim: Claim) -> str:
        """The kind of lock in words."""
        return claim.kind

    @admin.display(description=gettext_lazy("holder"), ordering="host")
    def holder(self, claim: Claim) -> str:
        """The host and the process."""
        return f"{claim.host} / {claim.pid}"

    @admin.display(description=gettext_lazy("since"), ordering="since")
    def held_since(self, claim: Claim) -> str:
        """How long ago it was made."""
        seconds = time.time() - claim.since / MICROSECONDS
        short = seconds < 120
        time_ago = f"{max(0.0, seconds):.0f} s" if short else timesince(claim.made_at, datetime.now(UTC))
        return _("%(time)s ago") % {"time": time_ago}

    @admin.display(description=gettext_lazy("expires in"), ordering="until")
    def expires(self, claim: Any) -> str:
        """How long the lease still lasts unless it is renewed."""
        return f"{claim.left / MICROSECONDS:.1f} s" if claim.left > 0 else _("expired")

    @admin.action(
        description=gettext_lazy("Evict the selected claims: their holders lose the lock"), permissions=["evict"]
    )
    def evict(self, request: HttpRequest, queryset: QuerySet[Claim]) -> HttpResponse | None:
        """Take claims away once that was confirmed, and note who did it in the admin's log."""
        if request.POST.get(CONFIRMED):
            self._evict(request, queryset)
            return None
        context = {
            **self.admin_site.each_context(request),
            "title": _("Are you sure?"),
            "claims": queryset,
            "opts": self.opts,
            "selected": helpers.ACTION_CHECKBOX_NAME,
            "confirmed": CONFIRMED,
            "media": self.media,
        }
        return TemplateResponse(request, "admin/interlock/claim/evict_confirmation.html", context)

    def _evict(self, request: HttpRequest, queryset: QuerySet[Claim]) -> None:
        store = OrmStore(orm_alias())
        evicted = 0
        try:
            for claim in queryset:
                if run(store.evict(f"{claim.namespace}{SEPARATOR}{claim.name}", claim.claim)):
                    evicted += 1
                    _note(request, claim)
        except LockError as error:
            self.message_user(request, _("The store failed: %(error)s") % {"error": error}, messages.ERROR)
        finally:
            store.close()
        level = messages.SUCCESS if evicted else messages.WARNING
        said = ngettext("%(count)d claim was evicted.", "%(count)d claims were evicted.", evicted) % {
            "count": evicted
        }
        advice = _("A holder notices within a third of its lease; until then it may work on.")
        self.message_user(request, f"{said} {advice}", level)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Show the list; `?refresh=5` shows it anew every 5 seconds."""
        query = request.GET.copy()
        wanted = (query.pop(REFRESH, None) or [""])[-1]
        request.GET = query  # type: ignore[assignment] # the list takes what it does not know for a filter
        is_number = wanted.isascii() and wanted.isdigit() and len(wanted) < 10  # int() refuses thousands of digits
        seconds = min(max(int(wanted), 1), 3600) if is_number else None
        path = query.urlencode()
        choices = [(each, f"?{path}{'&' if path else ''}{REFRESH}={each}") for each in INTERVALS]
        context = {"refresh": seconds, "refresh_choices": choices, "refresh_stop": f"?{path}", "title": _("Claims")}
        response: HttpResponse = super().changelist_view(request, {**context, **(extra_context or {})})
        return response


def _note(request: HttpRequest, claim: Claim) -> None:
    LogEntry.objects.create(
        user_id=request.user.pk,
        content_type_id=ContentType.objects.get_for_model(Claim).pk,
        object_id=str(claim.pk),
        object_repr=str(claim)[:200],
        action_flag=DELETION,
        change_message=(
            f"Evicted the claim {claim.claim} ({claim.state}, fence {claim.fence}) of {claim.name!r} from "
            f"{claim.host}, process {claim.pid}, thread {claim.thread!r}."
        ),
    )


def orm_alias() -> str | None:
    """Return the database of the first entry of INTERLOCK with an ORM store; None for the routers' choice."""
    return next(iter(orm_aliases()), None)
