"""What the seam of events costs in memory, the quickest store: without it, and with and without listeners."""

from __future__ import annotations

from bench.contestants import needs, seam
from bench.contestants.locks import interlock_memory
from bench.model import Beside, Contestant, Metric, Scenario, Target
from bench.scenarios import pairs
from bench.scenarios.compiled import best, slices

OFF, NONE = "nobody listens", "without the seam"
BESIDE = Beside(NONE)

SCENARIO: Scenario[pairs.Batch] = Scenario(
    key="events",
    title="What events and telemetry cost an uncontended acquire+release in memory",
    groups=frozenset({"events"}),
    contestants=(
        Contestant(
            NONE, pairs.calls(seam.without_seam), needs.interlock, "limit", "the checks cut out of the source"
        ),
        Contestant(OFF, pairs.calls(interlock_memory), needs.interlock, "ours", "as it is"),
        Contestant("a listener", pairs.calls(seam.with_listener), needs.interlock, "ours", "that does nothing"),
        Contestant(
            "interlock.otel, no SDK", pairs.calls(seam.with_api_only), needs.module("opentelemetry.trace"), "ours"
        ),
        Contestant(
            "interlock.otel, SDK", pairs.calls(seam.with_sdk), needs.module("opentelemetry.sdk.trace"), "ours"
        ),
    ),
    metrics=(Metric("best", "best µs per pair"), Metric("us", "median µs per pair")),
    work=slices,
    fold=best,
    beside=(BESIDE, Beside(OFF, "minus")),
    targets=(Target("off costs under 1 %", OFF, "best", 0.99, least=True, beside=BESIDE),),
)
