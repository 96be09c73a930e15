"""interlock without the seam of events, with nobody who listens, and with listeners."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from types import MethodType
from typing import Any

from bench.contestants import locks
from bench.model import Place

CHECKS = (
    "if started > self.look_at_log:",
    "if self.listeners:",
    "if session.listeners:",
)
"""What the seam costs an acquire and a release while nobody listens."""


def side(lock: Any, instead: str | None) -> Callable[[int], None]:
    """Take and release a lock with the source as it is, or without the checks; both compiled anew, which alone costs.

    Args:
        lock: of threads.
        instead: stands in the place of the checks; None leaves them.
    """
    from interlock.locks.sync import grants, session

    enter = _compiled(session, session.Session, "acquire", 3, instead)
    release = _compiled(grants, grants.Grant, "release", 1, instead)
    shared = lock._session
    acquire = lock.acquire

    def batch(times: int) -> None:
        shared.acquire = MethodType(enter, shared)
        for _ in range(times):
            release(acquire())

    return batch


def _compiled(module: Any, owner: type, name: str, expected: int, instead: str | None) -> Any:
    source = textwrap.dedent(inspect.getsource(getattr(owner, name)))
    found = sum(source.count(check) for check in CHECKS)
    if found != expected:
        raise RuntimeError(f"{name} has {found} checks of the seam, not {expected}: see CHECKS")
    for check in CHECKS if instead is not None else ():
        source = source.replace(check, instead or "")
    changed: dict[str, Any] = {}
    exec(compile(source, "with and without the seam", "exec"), vars(module), changed)
    return changed[name]


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
