"""What the seam of events costs: without it, with nobody who listens, with listeners; in memory, and on files."""

from __future__ import annotations

from bench.contestants import needs, seam
from bench.contestants.locks import interlock_file, interlock_memory
from bench.model import Beside, Contestant, Metric, Scenario, Target
from bench.scenarios import pairs
from bench.scenarios.compiled import best, slices

OFF, NONE = "nobody listens", "without the seam"
OFF_FILES, NONE_FILES = "nobody listens, files", "without the seam, files"
BESIDE = Beside(NONE)


def under_one_percent(ours: str, without: str) -> Target:
    """What the seam may cost while nobody listens."""
    return Target("off costs under 1 %", ours, "best", 0.99, least=True, beside=Beside(without))


SCENARIO: Scenario[pairs.Batch] = Scenario(
    key="events",
    title="What events and telemetry cost an uncontended acquire+release, in memory unless it says files",
    groups=frozenset({"events"}),
    contestants=(
        Contestant(
            NONE,
            pairs.calls(seam.without_seam(interlock_memory)),
            needs.interlock,
            "limit",
            "the checks cut out of the source",
        ),
        Contestant(OFF, pairs.calls(seam.as_it_is(interlock_memory)), needs.interlock, "ours", "as it is"),
        Contestant(NONE_FILES, pairs.calls(seam.without_seam(interlock_file)), needs.interlock, "limit"),
        Contestant(OFF_FILES, pairs.calls(seam.as_it_is(interlock_file)), needs.interlock, "ours"),
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
    beside=(BESIDE, Beside(NONE_FILES)),
    targets=(under_one_percent(OFF, NONE), under_one_percent(OFF_FILES, NONE_FILES)),
)
