"""The scenarios, in the order of the report. A new one is a module here and a row in `SCENARIOS`."""

from __future__ import annotations

from typing import Any

from bench.model import Scenario
from bench.scenarios import (
    cloud_uncontended,
    command_start,
    django_handover,
    django_occupy,
    django_processes,
    fresh_names,
    handover,
    memory,
    processes,
    redis_handover,
    redis_processes,
    redis_threads,
    redis_uncontended,
    sql_handover,
    sql_processes,
    sql_uncontended,
    threads,
    uncontended,
)

SCENARIOS: tuple[Scenario[Any], ...] = (
    uncontended.SCENARIO,
    fresh_names.SCENARIO,
    handover.SCENARIO,
    threads.SCENARIO,
    memory.SCENARIO,
    processes.SCENARIO,
    redis_uncontended.SCENARIO,
    redis_handover.SCENARIO,
    redis_processes.SCENARIO,
    redis_threads.SCENARIO,
    sql_uncontended.SCENARIO,
    sql_handover.SCENARIO,
    sql_processes.SCENARIO,
    cloud_uncontended.SCENARIO,
    django_occupy.SCENARIO,
    django_handover.SCENARIO,
    django_processes.SCENARIO,
    command_start.SCENARIO,
)


def by_key(key: str) -> Scenario[Any]:
    """Find a scenario by its key."""
    return next(scenario for scenario in SCENARIOS if scenario.key == key)


def groups() -> list[str]:
    """The words of the command line that choose scenarios."""
    return sorted(set().union(*(scenario.groups for scenario in SCENARIOS)))
