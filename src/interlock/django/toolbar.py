"""A panel of django-debug-toolbar: the claims that a request took.

DEBUG_TOOLBAR_PANELS = [..., "interlock.django.toolbar.ClaimsPanel"]
"""

import time
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

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


@dataclass
class Note:
    """The result of one claim: the name of the lock, the way it ended, and seconds of waiting and of holding."""

    name: str
    outcome: str = ""
    changed: float = 0.0
    waited: float = 0.0
    held: float = 0.0

    def shown(self) -> dict[str, str]:
        """Return the values for the template, with times in milliseconds."""
        since = time.monotonic() - self.changed
        waited = self.waited + since * (self.outcome == "waits")
        held = self.held + since * (self.outcome == "held")
        return {
            "name": self.name,
            "waited": f"{waited * 1e3:.2f}",
            "held": f"{held * 1e3:.2f}",
            "outcome": _(self.outcome),
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
        stats: dict[str, Any] = self.get_stats()  # type: ignore[no-untyped-call, unused-ignore]
        count = len(stats.get("claims", ()))
        return ngettext("%(count)d claim", "%(count)d claims", count) % {"count": count}

    def enable_instrumentation(self) -> None:
        """Begin to record the claims of the request."""
        self._notes: dict[str, Note] = {}
        _looking.set(self)
        self._stop = subscribe(self._hear)

    def disable_instrumentation(self) -> None:
        """End the recording."""
        self._stop()

    def generate_stats(self, request: HttpRequest, response: HttpResponse) -> None:
        """Store the recorded claims for the template."""
        self.record_stats({"claims": [note.shown() for note in self._notes.values()]})  # type: ignore[no-untyped-call, unused-ignore]

    def _hear(self, event: Event) -> None:
        # Found by id: a loss is reported in another thread, and events of other requests arrive here too.
        note = self._notes.get(event.id)
        if event.kind not in OUTCOMES or (note is None and _looking.get() is not self):
            return
        note = self._notes.setdefault(event.id, Note(event.name))
        note.outcome, note.changed = OUTCOMES[event.kind], time.monotonic()
        note.waited = note.waited if event.waited is None else event.waited
        note.held = event.held or 0.0


_looking: ContextVar[ClaimsPanel | None] = ContextVar("interlock_panel", default=None)
"""The panel of the present request; None without one."""
