"""A model checker for protocols written as coroutines: every interleaving, crash and lost reply."""

from proof.automaton import Automaton, Final, HiddenState
from proof.explore import Graph, System, Violation, explore
from proof.lasso import Lasso, lasso
from proof.liveness import Cycle, can_reach, fair_cycle, sources, starvation, stuck

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
