"""The heirs of the Redis store: who is let in before the server knows of it."""

from proof.heirs.configurations import CONFIGURATIONS, Configuration
from proof.heirs.mutants import MUTANTS, Mutant
from proof.heirs.verdicts import Verdict, verdict

__all__ = ["CONFIGURATIONS", "MUTANTS", "Configuration", "Mutant", "Verdict", "verdict"]
