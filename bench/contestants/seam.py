"""interlock in memory without the seam of events, with nobody who listens, and with listeners."""

from __future__ import annotations

import inspect
import textwrap
from typing import Any

from bench.contestants import locks
from bench.model import Place

CHECKS = (
    "if started > self.look_at_log:",
    "if self.listeners or EVERYWHERE:",
    "if session.listeners or EVERYWHERE:",
)
"""What the seam costs an acquire and a release while nobody listens."""


def without_seam(place: Place) -> Any:
    """The same source without the checks of the seam."""
    from interlock.locks.sync import grants, session

    _take_out(session, session.Session, "acquire", 3)
    _take_out(grants, grants.Grant, "release", 1)
    return locks.interlock_memory(place)


def _take_out(module: Any, owner: type, name: str, expected: int) -> None:
    source = textwrap.dedent(inspect.getsource(getattr(owner, name)))
    found = 0
    for check in CHECKS:
        found += source.count(check)
        source = source.replace(check, "if 0:")
    if found != expected:
        raise RuntimeError(f"{name} has {found} checks of the seam, not {expected}: see CHECKS")
    changed: dict[str, Any] = {}
    exec(compile(source, "without the seam", "exec"), vars(module), changed)
    setattr(owner, name, changed[name])


def with_listener(place: Place) -> Any:
    """A listener that does nothing."""
    import interlock

    place.closing.callback(interlock.subscribe(lambda event: None))
    return locks.interlock_memory(place)


def with_api_only(place: Place) -> Any:
    """`interlock.otel` where no SDK is set up: spans and metrics go nowhere."""
    from interlock.otel import instrument

    place.closing.callback(instrument())
    return locks.interlock_memory(place)


def with_sdk(place: Place) -> Any:
    """`interlock.otel` with the SDK, its metrics aggregated and its spans ended for nobody."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider

    from interlock.otel import instrument

    meters = MeterProvider([InMemoryMetricReader()])
    place.closing.callback(instrument(tracer_provider=TracerProvider(), meter_provider=meters))
    return locks.interlock_memory(place)
