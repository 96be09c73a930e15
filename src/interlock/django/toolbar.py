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
    """What became of one claim: the lock's name, how it ended, and seconds since then, of waiting and of holding."""

    name: str
    outcome: str = ""
    changed: float = 0.0
    waited: float = 0.0
    held: float = 0.0

    def shown(self) -> dict[str, str]:
        """Return it for the template, in milliseconds."""
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
    """The claims that a request took: name, how long it waited, how long it held, and how that ended."""

    template = "interlock/claims_panel.html"
    is_async = True

    @property
    def title(self) -> str:
        """Above the table."""
        return _("Locks")

    @property
    def nav_subtitle(self) -> str:
        """How many."""
        stats: dict[str, Any] = self.get_stats()  # type: ignore[no-untyped-call, unused-ignore]
        count = len(stats.get("claims", ()))
        return ngettext("%(count)d claim", "%(count)d claims", count) % {"count": count}

    def enable_instrumentation(self) -> None:
        """Note what this request takes."""
        self._notes: dict[str, Note] = {}
        _looking.set(self)
        self._stop = subscribe(self._hear)

    def disable_instrumentation(self) -> None:
        """Note nothing any more."""
        self._stop()

    def generate_stats(self, request: HttpRequest, response: HttpResponse) -> None:
        """Keep what was noted."""
        claims = [note.shown() for note in self._notes.values()]
        self.record_stats({"claims": claims})  # type: ignore[no-untyped-call, unused-ignore]

    def _hear(self, event: Event) -> None:
        # A loss is told in a thread of its own; what other requests do is told to this panel too.
        note = self._notes.get(event.id)
        if event.kind not in OUTCOMES or (note is None and _looking.get() is not self):
            return
        note = self._notes.setdefault(event.id, Note(event.name))
        note.outcome, note.changed = OUTCOMES[event.kind], time.monotonic()
        note.waited = note.waited if event.waited is None else event.waited
        note.held = event.held or 0.0


_looking: ContextVar[ClaimsPanel | None] = ContextVar("interlock_panel", default=None)
"""Looks at the request at hand; None where no panel looks."""
