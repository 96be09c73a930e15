"""A model checker for protocols written as generators: every interleaving, crash and lost reply."""

from interlock.testing.checker.automaton import Automaton, Final, HiddenState
from interlock.testing.checker.explore import Graph, System, Violation, explore
from interlock.testing.checker.lasso import Lasso, lasso
from interlock.testing.checker.liveness import Cycle, can_reach, fair_cycle, sources, starvation, stuck

__all__ = [
    "Automaton",
    "Cycle",
    "Final",
    "Graph",
    "HiddenState",
    "Lasso",
    "System",
    "Violation",
    "can_reach",
    "explore",
    "fair_cycle",
    "lasso",
    "sources",
    "starvation",
    "stuck",
]
