"""The heirs of the Redis store: who is let in before the server knows of it."""

from interlock.testing.checker.heirs.configurations import CONFIGURATIONS, Configuration
from interlock.testing.checker.heirs.mutants import MUTANTS, Mutant
from interlock.testing.checker.heirs.verdicts import Verdict, verdict

__all__ = ["CONFIGURATIONS", "MUTANTS", "Configuration", "Mutant", "Verdict", "verdict"]
