"""A panel of django-debug-toolbar: the claims that a request took.

DEBUG_TOOLBAR_PANELS = [..., "interlock.django.toolbar.ClaimsPanel"]
"""

import time
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

from debug_toolbar.panels import Panel
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from interlock.client._async.grants import AsyncGrant, AsyncGrants, AsyncReentry
from interlock.client._async.locks import AsyncLockable
from interlock.client._sync.grants import Grant, Grants, Reentry
from interlock.client._sync.locks import Lockable

WAITS, HELD, RELEASED, LOST, NOT_OBTAINED = "waits", "held", "released", "lost", "not obtained"


class Note:
    """What became of one acquire: the lock's name, seconds of waiting and of holding, and how it ended."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.outcome = WAITS
        self._began = self._since = time.monotonic()
        self._until: float | None = None

    def obtained(self, grant: Any) -> None:
        """It waits no more."""
        self._since = time.monotonic()
        self.outcome = HELD if grant is not None else NOT_OBTAINED
        if grant is None:
            self._until = self._since
        else:
            _notes_of[grant] = self

    def failed(self, error: BaseException) -> None:
        """It waits no more, since an error came."""
        self._since = self._until = time.monotonic()
        self.outcome = type(error).__name__

    def left(self, grant: Any, released: bool) -> None:
        """It was released, or was to be."""
        if self._until is None and (released or grant.lost):
            self._until = time.monotonic()
            self.outcome = RELEASED if released else LOST

    def shown(self) -> dict[str, Any]:
        """Return it for the template, in milliseconds."""
        now = time.monotonic()
        since = now if self.outcome == WAITS else self._since
        held = (now if self._until is None else self._until) - since
        return {
            "name": self.name,
            "waited": f"{(since - self._began) * 1e3:.2f}",
            "held": f"{held * 1e3:.2f}",
            "outcome": self.outcome,
        }


_notes: ContextVar[list[Note] | None] = ContextVar("interlock_panel", default=None)
"""Of the request at hand; None where no panel looks."""
_notes_of: "WeakKeyDictionary[Any, Note]" = WeakKeyDictionary()


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

    @classmethod
    def ready(cls) -> None:
        """See to it that acquires and releases are noted where a panel looks."""
        for kind in (Lockable, AsyncLockable):
            _replace(kind, "_obtain", _noting_async if kind is AsyncLockable else _noting)
        for threads in (Grant, Reentry, Grants):
            _replace(threads, "release", _leaving)
        for tasks in (AsyncGrant, AsyncReentry, AsyncGrants):
            _replace(tasks, "release", _leaving_async)

    def enable_instrumentation(self) -> None:
        """Note what this request takes."""
        self._taken: list[Note] = []
        _notes.set(self._taken)

    def disable_instrumentation(self) -> None:
        """Note nothing any more."""
        _notes.set(None)

    def generate_stats(self, request: Any, response: Any) -> None:
        """Keep what was noted."""
        claims = [note.shown() for note in self._taken]
        self.record_stats({"claims": claims})  # type: ignore[no-untyped-call, unused-ignore]


def _replace(kind: type, name: str, wrap: Callable[[Any], Any]) -> None:
    there = vars(kind)[name]
    if not hasattr(there, "__wrapped__"):
        setattr(kind, name, wrap(there))


def _begun(lock: Any) -> Note | None:
    notes = _notes.get()
    if notes is None:
        return None
    notes.append(Note(lock.name))
    return notes[-1]


def _noting(obtain: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(obtain)
    def noting(self: Any, *args: Any) -> Any:
        note = _begun(self)
        if note is None:
            return obtain(self, *args)
        try:
            grant = obtain(self, *args)
        except BaseException as error:
            note.failed(error)
            raise
        note.obtained(grant)
        return grant

    return noting


def _noting_async(obtain: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(obtain)
    async def noting(self: Any, *args: Any) -> Any:
        note = _begun(self)
        if note is None:
            return await obtain(self, *args)
        try:
            grant = await obtain(self, *args)
        except BaseException as error:
            note.failed(error)
            raise
        note.obtained(grant)
        return grant

    return noting


def _leaving(release: Callable[[Any], bool]) -> Callable[[Any], bool]:
    @wraps(release)
    def leaving(self: Any) -> bool:
        released = release(self)
        if (note := _notes_of.get(self)) is not None:
            note.left(self, released)
        return released

    return leaving


def _leaving_async(release: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @wraps(release)
    async def leaving(self: Any) -> bool:
        released: bool = await release(self)
        if (note := _notes_of.get(self)) is not None:
            note.left(self, released)
        return released

    return leaving
