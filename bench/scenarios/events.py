"""The cost of event listeners: none, one that does nothing, OpenTelemetry."""

from __future__ import annotations

from bench.contestants import needs, seam
from bench.contestants.locks import interlock_memory
from bench.model import Beside, Contestant, Scenario, Target
from bench.scenarios import pairs

OFF, LISTENER = "nobody listens", "a listener"
BESIDE = Beside(OFF)

SCENARIO: Scenario[pairs.Batch] = Scenario(
    key="events",
    title="What events and telemetry cost an uncontended acquire+release in memory",
    groups=frozenset({"events"}),
    contestants=(
        Contestant(OFF, pairs.calls(interlock_memory), needs.interlock, "ours"),
        Contestant(LISTENER, pairs.calls(seam.with_listener), needs.interlock, "ours", "that does nothing"),
        Contestant(
            "interlock.otel, no SDK", pairs.calls(seam.with_api_only), needs.module("opentelemetry.trace"), "ours"
        ),
        Contestant(
            "interlock.otel, SDK", pairs.calls(seam.with_sdk), needs.module("opentelemetry.sdk.trace"), "ours"
        ),
    ),
    metrics=pairs.METRICS,
    work=pairs.work,
    fold=pairs.fold,
    beside=(BESIDE,),
    targets=(Target("one that does nothing at most doubles it", LISTENER, "us", 0.5, least=True, beside=BESIDE),),
)
