"""Reading many rows of a guarded model beside those of a plain one, on PostgreSQL."""

from __future__ import annotations

from bench.contestants import django_site as site
from bench.contestants import needs
from bench.model import Beside, Contestant, Metric, Scenario, Target
from bench.scenarios import pairs

GUARDED, PLAIN = "Guarded", "plain"
ours = needs.module("interlock.django.guarded", install="-e .[django]")
SCENARIO: Scenario[pairs.Batch] = Scenario(
    key="django_reading",
    title="Reading 1,000 rows with thirteen columns in a Django project on PostgreSQL",
    groups=frozenset({"django"}),
    contestants=(
        Contestant(GUARDED, site.site(site.reading("Kept")), ours, "ours"),
        Contestant(PLAIN, site.site(site.reading("Plain")), needs.module("django"), notes="Django's own"),
    ),
    metrics=(Metric("us", "µs per 1,000 rows"), Metric("per_second", "times/s", "high")),
    work=pairs.work,
    fold=pairs.fold,
    beside=(Beside(PLAIN),),
    targets=(
        Target("at most 15 % slower than plain rows", GUARDED, "us", 1 / 1.15, least=True, beside=Beside(PLAIN)),
    ),
    stage=site.stage,
)
