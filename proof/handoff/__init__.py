"""The successors of the Redis store: who is let in before the server knows of it."""

from proof.handoff.configurations import CONFIGURATIONS, Configuration
from proof.handoff.mutants import MUTANTS, Mutant
from proof.handoff.verdicts import Verdict, verdict

__all__ = ["CONFIGURATIONS", "MUTANTS", "Configuration", "Mutant", "Verdict", "verdict"]
