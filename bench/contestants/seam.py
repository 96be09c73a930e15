"""interlock with listeners to its events."""

from __future__ import annotations

from typing import Any

from bench.contestants import locks
from bench.model import Place


def with_listener(place: Place) -> Any:
    """A listener that does nothing."""
    import interlock

    place.closing.callback(interlock.subscribe(lambda event: None))
    return locks.interlock_memory(place)


def with_api_only(place: Place) -> Any:
    """`interlock.otel` without an SDK: spans and metrics are discarded."""
    from interlock.otel import instrument

    place.closing.callback(instrument())
    return locks.interlock_memory(place)


def with_sdk(place: Place) -> Any:
    """`interlock.otel` with the SDK: metrics are aggregated, spans end without an exporter."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider

    from interlock.otel import instrument

    meters = MeterProvider([InMemoryMetricReader()])
    place.closing.callback(instrument(tracer_provider=TracerProvider(), meter_provider=meters))
    return locks.interlock_memory(place)
