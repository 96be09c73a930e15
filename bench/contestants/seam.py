"""interlock without the seam of events, with nobody who listens, and with listeners."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from typing import Any

from bench.contestants import locks
from bench.model import Place

CHECKS = (
    "if started > self.look_at_log:",
    "if self.listeners:",
    "if session.listeners:",
)
"""What the seam costs an acquire and a release while nobody listens."""


def without_seam(make: Callable[[Place], Any]) -> Callable[[Place], Any]:
    """The same source without the checks of the seam."""

    def build(place: Place) -> Any:
        compile_anew("if 0:")
        return make(place)

    return build


def as_it_is(make: Callable[[Place], Any]) -> Callable[[Place], Any]:
    """With the checks; compiled anew too, since that alone makes a difference of a hundredth."""

    def build(place: Place) -> Any:
        compile_anew(None)
        return make(place)

    return build


def compile_anew(instead: str | None) -> None:
    """Compile acquire and release from their source.

    Args:
        instead: stands in the place of the checks; None leaves them.
    """
    from interlock.locks.sync import grants, session

    _compile(session, session.Session, "acquire", 3, instead)
    _compile(grants, grants.Grant, "release", 1, instead)


def _compile(module: Any, owner: type, name: str, expected: int, instead: str | None) -> None:
    source = textwrap.dedent(inspect.getsource(getattr(owner, name)))
    found = sum(source.count(check) for check in CHECKS)
    if found != expected:
        raise RuntimeError(f"{name} has {found} checks of the seam, not {expected}: see CHECKS")
    for check in CHECKS if instead is not None else ():
        source = source.replace(check, instead or "")
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
