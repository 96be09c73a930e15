"""The proof of the swap in a shared folder: a model of clients, caches, late requests and sleepers."""

from __future__ import annotations

from model_checker.command import Proof
from model_checker.explore import explore
from model_checker.share.configurations import CONFIGURATIONS, Configuration
from model_checker.share.mutants import MUTANTS, ShareMutant
from model_checker.share.world import World
from model_checker.verdicts import Verdict


def judged(world: World) -> Verdict:
    """Explore a world; its verdict is about safety only, since a client may stop for ever at any point."""
    graph = explore(world, edges=False)
    return Verdict(len(graph), graph.edges, graph.wrong, graph.trace(len(graph) - 1) if graph.wrong else ())


def check(configuration: Configuration) -> Verdict:
    """Return the verdict on one world."""
    return judged(World(configuration))


def catch(mutant: ShareMutant) -> Verdict:
    """Return the verdict on a world without one safeguard."""
    return judged(mutant.kind(mutant.world))


PROOF = Proof(CONFIGURATIONS, check, MUTANTS, catch)
