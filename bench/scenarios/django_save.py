"""`save()` of a guarded model beside that of a plain one, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from bench.contestants import django_site as site
from bench.contestants import needs
from bench.model import Beside, Contestant, Metric, Raw, Scenario, Seat, Target
from bench.scenarios import pairs

ONE, FOUR = ("title",), ("title", "status", "notes", "copies")
GUARDED, GUARDED_FOUR = "Guarded, 1 field", "Guarded, 4 fields"
PLAIN, PLAIN_FOUR = "plain, 1 field", "plain, 4 fields"


def work(contestant: Contestant[pairs.Batch], seat: Seat) -> Raw:
    """Time saves, as in `pairs`, and count the queries of one."""
    turn = contestant.make(seat.place)
    once: Contestant[pairs.Batch] = Contestant(contestant.name, lambda _: turn)
    return {**pairs.work(once, seat), "queries": site.queries_of(turn)}


def fold(raws: Sequence[Raw]) -> Raw:
    """As `pairs.fold`."""
    return {**pairs.fold(raws), "queries": raws[0]["queries"]}


ours = needs.module("interlock.django.guarded", install="-e .[django]")
SCENARIO: Scenario[pairs.Batch] = Scenario(
    key="django_save",
    title="save() of a model with thirteen columns in a Django project on PostgreSQL",
    groups=frozenset({"django"}),
    contestants=(
        Contestant(GUARDED, site.site(site.saved("Kept", ONE)), ours, "ours"),
        Contestant(PLAIN, site.site(site.saved("Plain", ONE)), needs.module("django"), notes="Django's own"),
        Contestant(GUARDED_FOUR, site.site(site.saved("Kept", FOUR)), ours, "ours"),
        Contestant(PLAIN_FOUR, site.site(site.saved("Plain", FOUR)), needs.module("django"), notes="Django's own"),
    ),
    metrics=(Metric("us", "µs per save"), Metric("per_second", "saves/s", "high"), Metric("queries", "queries")),
    work=work,
    fold=fold,
    beside=(Beside(PLAIN), Beside(PLAIN_FOUR)),
    targets=(
        Target("within 10 % of a plain save", GUARDED, "us", 1 / 1.1, least=True, beside=Beside(PLAIN)),
        Target("within 10 % of a plain save", GUARDED_FOUR, "us", 1 / 1.1, least=True, beside=Beside(PLAIN_FOUR)),
        Target("one query", GUARDED, "queries", 1.0),
    ),
    stage=site.stage,
)
