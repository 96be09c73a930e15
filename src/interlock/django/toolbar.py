"""A panel of django-debug-toolbar: the claims that a request took.

DEBUG_TOOLBAR_PANELS = [..., "interlock.django.toolbar.ClaimsPanel"]
"""

import time
from contextvars import ContextVar
from typing import TypeAlias

from debug_toolbar.panels import Panel
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from interlock.client.events import Event, subscribe

OUTCOMES = {
    "queued": gettext_noop("waits"),
    "acquired": gettext_noop("held"),
    "released": gettext_noop("released"),
    "lost": gettext_noop("lost"),
    "timed out": gettext_noop("not obtained"),
    "withdrawn": gettext_noop("given up"),
}


Timeline: TypeAlias = list[tuple[float, Event]]
"""The events of one claim, and when each came, on the monotonic clock."""


def shown(timeline: Timeline) -> dict[str, str]:
    """Return the values of one claim for the template, with times in milliseconds."""
    changed, last = timeline[-1]
    since = time.monotonic() - changed
    waited = max(event.waited or 0.0 for _, event in timeline) + since * (last.kind == "queued")
    held = (last.held or 0.0) + since * (last.kind == "acquired")
    return {
        "name": last.name,
        "waited": f"{waited * 1e3:.2f}",
        "held": f"{held * 1e3:.2f}",
        "outcome": _(OUTCOMES[last.kind]),
    }


class ClaimsPanel(Panel):  # type: ignore[misc, unused-ignore]
    """The claims that a request took: the name, the times of waiting and of holding, and the way each ended."""

    template = "interlock/claims_panel.html"
    is_async = True

    @property
    def title(self) -> str:
        """The heading of the panel."""
        return _("Locks")

    @property
    def nav_subtitle(self) -> str:
        """The number of claims, for the navigation."""
        stats = self.get_stats()  # type: ignore[no-untyped-call, unused-ignore]
        count = len(stats.get("claims", ()))
        return ngettext("%(count)d claim", "%(count)d claims", count) % {"count": count}

    def enable_instrumentation(self) -> None:
        """Begin to record the claims of the request."""
        self._timelines: dict[str, Timeline] = {}
        _looking.set(self)
        self._stop = subscribe(self._hear)

    def disable_instrumentation(self) -> None:
        """End the recording."""
        self._stop()

    def generate_stats(self, request: HttpRequest, response: HttpResponse) -> None:
        """Store the recorded claims for the template."""
        self.record_stats({"claims": [shown(timeline) for timeline in self._timelines.values()]})  # type: ignore[no-untyped-call, unused-ignore]

    def _hear(self, event: Event) -> None:
        # Found by id: a loss is reported in another thread, and events of other requests arrive here too.
        if event.kind in OUTCOMES and (event.id in self._timelines or _looking.get() is self):
            self._timelines.setdefault(event.id, []).append((time.monotonic(), event))


_looking: ContextVar[ClaimsPanel | None] = ContextVar("interlock_panel", default=None)
"""The panel of the present request; None without one."""
