"""The proof of the local hand-off: a waiter of the same process is let in before the server knows of it."""

from __future__ import annotations

from model_checker.command import Proof
from model_checker.handoff.configurations import CONFIGURATIONS, Configuration
from model_checker.handoff.mutants import MUTANTS, judged
from model_checker.handoff.world import World
from model_checker.verdicts import Verdict, verdict


def check(configuration: Configuration) -> Verdict:
    """Return the verdict on one world."""
    return verdict(World(configuration))


PROOF = Proof(CONFIGURATIONS, check, MUTANTS, judged)
