"""The common part of the connections of threads and of tasks."""

import math
from collections.abc import Callable

from interlock.client.arguments import DEFAULT_OPTIONS, AcquireOptions
from interlock.client.events import GLOBAL_LISTENERS, Event, EventKind, Listeners
from interlock.client.messages import GONE_FROM_LINE
from interlock.core.claims import (
    MAX_LABEL,
    MAX_NAME,
    SEPARATOR,
    WRITER_UNITS,
    Claim,
    LockSpec,
    checked_at_least,
    checked_at_most,
    checked_count,
    checked_flag,
    checked_instance,
    checked_name,
    checked_text,
    checked_timeout,
    checked_ttl,
    name_of,
    shown_value,
)
from interlock.core.errors import InvalidArgument, StoreError, Unsupported
from interlock.core.queue import AcquireCall, Feature, Wakeable
from interlock.core.redaction import masked
from interlock.runtime import log
from interlock.storekit.store import Store

WORDS = {
    "readers": "reader/writer locks",
    "slot": "slots",
    "once": "runs of `once`",
    "detach": "detached locks",
    "downgrade": "`grant.downgrade()`",
    "waiters": "max_waiters",
}


class BaseClient:
    """A store, and the program's connection to it.

    Args:
        store: the store of the claims.
        namespace: separates applications that share a store.
        ttl: default lease of its locks in seconds; None for the store's own.
        instance: the stable name of this process; None without one.
        takeover: True if its first acquire removes the claims of earlier processes of this name.

    Attributes:
        instance, takeover: these arguments.
        since: the start of the process that connected, as for `Incarnation`; 0 without an instance.
        source: `connect`, `aconnect` and the URL, for another process; None if the connection was not made from a
            URL.
        closed: True from the start of `close()`.
        listeners: the functions that receive the events of this connection.
        now: the clock of its leases, in seconds.
    """

    def __init__(self, store: Store, namespace: str, ttl: float | None, instance: str | None, takeover: bool) -> None:
        self.store = store
        self.namespace = checked_text(namespace, "namespace", MAX_NAME)
        self.ttl = store.default_ttl if ttl is None else self.checked_ttl(ttl)
        self.closed = False
        self.source: tuple[Callable[..., object], Callable[..., object], str] | None = None
        self.now = store.now
        self.listeners: Listeners = {}
        self.instance = None if instance is None else checked_instance(instance)
        self.takeover = checked_flag(takeover, "takeover")
        self.since = 0
        if takeover:
            if instance is None:
                raise InvalidArgument(
                    "takeover=True needs instance=, the stable name of this process. Give e.g. the name of its pod."
                )
            self.need("waiters", "takeover")
        if instance is not None:
            from interlock.runtime.incarnation import began  # loaded late, because few programs need it

            self.since = began()

    @property
    def where(self) -> str:
        """The name of the store for messages, without passwords."""
        return type(self.store).__name__ if self.source is None else masked(self.source[2])

    def mark(self) -> str:
        """Return what the claims of this process say before the name of their thread; "" without an instance."""
        if self.instance is None:
            return ""
        from interlock.runtime.incarnation import this_process

        return this_process(self.instance, self.since).mark

    def came_in_a_pickle(self) -> None:
        """Make claims that no process of another host takes over."""
        if self.instance is not None:
            from interlock.runtime.incarnation import ABROAD

            self.since = ABROAD

    def check_open(self) -> None:
        """Raise StoreError if the connection was closed."""
        if self.closed:
            raise StoreError("This connection is closed. Call connect() again.")

    def key(self, name: str) -> str:
        """Return the key of a name."""
        return self.namespace + SEPARATOR + checked_name(name)

    def listed(self, name: str | None) -> str:
        """Return what `look` lists: the key of a name; for None, the beginning of all keys of this namespace."""
        return self.namespace + SEPARATOR if name is None else self.key(name)

    def checked_ttl(self, ttl: object) -> float:
        """Return `ttl` as seconds if it is a valid lease on this store, else raise InvalidArgument."""
        return checked_ttl(ttl, self.store.shortest_ttl, self.store.default_ttl)

    def spec(
        self, name: str, units: int, capacity: int, ttl: float | None, label: str | None, at_least: float = 0.0
    ) -> LockSpec:
        """Return the parameters of a lock object after checking its arguments."""
        lease = None if ttl is None else self.checked_ttl(ttl)
        kept = checked_at_least(at_least, lease)
        if capacity > 1:
            self.need("readers" if capacity == WRITER_UNITS else "semaphores")
        return LockSpec(
            self.namespace + SEPARATOR + checked_name(name),
            units,
            capacity,
            max(self.ttl, kept) if lease is None else lease,
            "" if label is None else checked_text(label, "label", MAX_LABEL),
        )

    def options(
        self,
        timeout: float | None = None,
        renew: bool = True,
        on_lost: Callable[..., object] | None = None,
        at_least: float = 0.0,
        at_most: float | None = None,
        on_wanted: Callable[..., object] | None = None,
        max_waiters: int | None = None,
    ) -> AcquireOptions:
        """Return the options of an acquire after checking them, except `at_least`."""
        if (
            timeout is None
            and renew is True
            and on_lost is None
            and not at_least
            and at_most is None
            and on_wanted is None
            and max_waiters is None
        ):
            return DEFAULT_OPTIONS
        if on_wanted is not None:
            self.need("wanted")
        if max_waiters is not None:
            checked_count(max_waiters, "max_waiters")
            self.need("waiters")
        for name, function in (("on_lost", on_lost), ("on_wanted", on_wanted)):
            if function is not None and not callable(function):
                raise InvalidArgument(
                    f"{name} must be a function of one argument, the grant, not {shown_value(function)}."
                )
        checked_flag(renew, "renew")
        most = math.inf if at_most is None else checked_at_most(at_most, at_least)
        return AcquireOptions(
            checked_timeout(True, timeout), renew, on_lost, at_least, most, on_wanted, max_waiters=max_waiters
        )

    def need(self, feature: Feature, words: str = "") -> None:
        """Raise Unsupported if the store lacks a feature; `words` name what needs it."""
        if feature not in self.store.features:
            raise Unsupported(
                f"{self.where} does not support {words or WORDS.get(feature, feature)}. "
                "Use a store that does, such as postgresql://, redis:// or file://.",
                feature,
            )

    def emit(
        self,
        kind: EventKind,
        claim: Claim,
        *,
        fence: int | None = None,
        started: float | None = None,
        held: float | None = None,
        reason: str = "",
    ) -> None:
        """Send an event to each listener, even if another listener raises.

        Args:
            kind, fence, held, reason: like the attributes of `Event`.
            claim: the claim of the event.
            started: the time of the call of acquire.
        """
        if self.listeners or GLOBAL_LISTENERS:
            waited = None if started is None else self.now() - started
            spec = claim.spec
            event = Event(kind, name_of(spec.key), claim.id, fence, spec.label, waited, held, reason)
            for listener in [*self.listeners.values(), *GLOBAL_LISTENERS.values()]:
                try:
                    listener(event)
                except Exception:
                    log.exception("A listener failed at %s.", event)

    def queued(self, call: AcquireCall[Wakeable]) -> None:
        """Report that the claim of `call` waits in line."""
        self.left_line(call)
        call.queued = call.claim
        self.emit("queued", call.claim, started=call.started)

    def left_line(self, call: AcquireCall[Wakeable]) -> None:
        """Report that a waiting claim is gone, if `call` continues with another claim."""
        if call.queued is not None and call.queued.id != call.claim.id:
            claim, call.queued = call.queued, None
            self.emit("withdrawn", claim, started=call.started, reason=GONE_FROM_LINE)

    def __reduce__(self) -> tuple[object, ...]:
        if self.source is None or self.source[2].startswith("memory:"):
            why = "its locks exist only in this process" if self.source else "it was not made from a URL"
            raise InvalidArgument(
                f"A connection to {self.where} cannot be sent to another process: {why}. Connect by the URL of a "
                f"store that both reach, or connect again in that process."
            )
        again, connect, url = self.source
        return again, (connect, url, self.namespace, self.ttl, self.instance)
