"""OpenTelemetry spans and metrics from the events of locks."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeAlias

from interlock.core.errors import InvalidArgument, install

try:
    from opentelemetry.metrics import Histogram, MeterProvider, get_meter
    from opentelemetry.trace import Span, Status, StatusCode, TracerProvider, get_tracer
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"{error}: {install('otel')}", name=error.name) from error

from interlock.client.events import Event, Listener, subscribe
from interlock.core.claims import shown_value
from interlock.runtime.clock import time_of_day
from interlock.runtime.process import checked_pid

__all__ = ["instrument"]

Attributes: TypeAlias = Mapping[str, str | int | float | bool]
SECONDS = (0.0001, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800)
"""Bounds of the histograms' buckets, in seconds: from a free lock to a nightly job."""

MAX_OPEN_SPANS = 100_000  # spans, because those of unreleased grants would pile up


def instrument(
    subscribe: Callable[[Listener], Callable[[], None]] = subscribe,
    *,
    attributes: Callable[[Event], Attributes] | None = None,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> Callable[[], None]:
    """Make spans and metrics from all further events of locks.

    Args:
        subscribe: the source of the events: all connections of this process, or the `subscribe` of one connection.
        attributes: makes attributes of the metrics from an event.  They should have few values: metrics omit the
            lock's name, which often has many.  Spans always have the name.
        tracer_provider, meter_provider: the receivers of spans and metrics; by default the global ones.

    Returns:
        A function that stops it; safe to repeat.

    Raises:
        InvalidArgument: `attributes` is not callable.
    """
    if attributes is not None and not callable(attributes):
        raise InvalidArgument(
            f"attributes must be a function of one argument, the event, not {shown_value(attributes)}."
        )
    telemetry = _Telemetry(attributes or (lambda event: {}), tracer_provider, meter_provider)
    unsubscribe = subscribe(telemetry)

    def stop() -> None:
        unsubscribe()
        telemetry.close()

    return stop


class _Telemetry:
    """The listener; events of one claim come in order, those of several in any thread."""

    def __init__(
        self, attributes: Callable[[Event], Attributes], tracers: TracerProvider | None, meters: MeterProvider | None
    ) -> None:
        self._attributes = attributes
        self._tracer = get_tracer("interlock", tracer_provider=tracers)
        meter = get_meter("interlock", meter_provider=meters)
        self._wait = meter.create_histogram(
            "interlock.wait.duration",
            unit="s",
            description="From the call of acquire to its end.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self._hold = meter.create_histogram(
            "interlock.hold.duration",
            unit="s",
            description="How long a lock was held.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self._waiters = meter.create_up_down_counter("interlock.waiters", description="Claims that wait in line.")
        self._losses = meter.create_counter("interlock.losses", description="Locks that were lost while held.")
        self._failures = meter.create_counter("interlock.renewal.failures", description="Renewals that failed.")
        self._evictions = meter.create_counter("interlock.evictions", description="Claims that were evicted here.")
        self._pid = checked_pid()
        self._waiting: dict[str, tuple[Attributes, Span]] = {}
        self._holding: dict[str, Span] = {}

    def __call__(self, event: Event) -> None:
        """Process an event."""
        here = checked_pid()
        if self._pid != here:  # a forked child: the claims and spans belong to its parent
            self._pid = here
            self._forget_waiters()
            self._holding.clear()
        attributes = self._attributes(event)
        match event.kind:
            case "queued":
                self._waiting[event.id] = attributes, self._start("interlock wait", event, event.waited)
                self._waiters.add(1, attributes)
            case "acquired" | "timed out" | "withdrawn":
                then, waiting = self._waiting.pop(event.id, (None, None))
                if then is not None:
                    self._waiters.add(-1, then)
                self._over(event, attributes, event.waited, self._wait, waiting)
                if event.kind == "acquired":
                    span = self._start("interlock hold", event, 0)
                    if span.is_recording():
                        self._holding[event.id] = span
                    if len(self._holding) > MAX_OPEN_SPANS:
                        self._holding.pop(next(iter(self._holding)), None)
            case "released" | "lost":
                if event.kind == "lost":
                    self._losses.add(1, attributes)
                self._over(event, attributes, event.held, self._hold, self._holding.pop(event.id, None))
            case "renewal failed":
                self._failures.add(1, attributes)
                if event.id in self._holding:
                    self._holding[event.id].add_event(event.kind, {"interlock.reason": event.reason})
            case "evicted":
                self._evictions.add(1, attributes)

    def _start(self, name: str, event: Event, ago: float | None) -> Span:
        """Start a span with a start time in the past, within the program's current span."""
        known = {
            "interlock.name": event.name,
            "interlock.claim": event.id,
            "interlock.label": event.label or None,
            "interlock.fence": event.fence,
        }
        attributes = {name: value for name, value in known.items() if value is not None}
        began = int((time_of_day() - (ago or 0)) * 1e9)
        return self._tracer.start_span(name, attributes=attributes, start_time=began)

    def _over(
        self, event: Event, attributes: Attributes, seconds: float | None, durations: Histogram, span: Span | None
    ) -> None:
        """Record the duration of a wait or a hold, and end its span."""
        outcome = event.kind.replace(" ", "_")
        if seconds is not None:
            durations.record(seconds, {**attributes, "interlock.outcome": outcome})
        if span is None:
            return
        span.set_attribute("interlock.outcome", outcome)
        if event.kind == "lost":
            span.set_status(Status(StatusCode.ERROR, event.reason))
        elif event.reason:
            span.set_attribute("interlock.reason", event.reason)
        span.end()

    def _forget_waiters(self) -> None:
        """Stop counting the waiters, whose ends will not be reported here."""
        with suppress(KeyError):  # all are removed
            while True:
                self._waiters.add(-1, self._waiting.popitem()[1][0])

    def close(self) -> None:
        """End all open spans; ignore further events."""
        for _, span in list(self._waiting.values()):
            span.end()
        self._forget_waiters()
        while self._holding:
            self._holding.popitem()[1].end()
