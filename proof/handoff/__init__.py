"""The proof of the local hand-off: a waiter of the same process is let in before the server knows of it."""

from __future__ import annotations

from proof.command import Proof
from proof.handoff.configurations import CONFIGURATIONS, Configuration
from proof.handoff.mutants import MUTANTS, judged
from proof.handoff.world import World
from proof.verdicts import Verdict, verdict


def check(configuration: Configuration) -> Verdict:
    """Return the verdict on one world."""
    return verdict(World(configuration))


PROOF = Proof(CONFIGURATIONS, check, MUTANTS, judged)
