"""The file store's folded line, checked: the production code in a world of kills, lapses and evictions."""

from interlock.testing.checker.files.configurations import CONFIGURATIONS, Configuration
from interlock.testing.checker.files.mutants import MUTANTS, Mutant
from interlock.testing.checker.files.verdicts import Verdict, verdict

__all__ = ["CONFIGURATIONS", "Configuration", "MUTANTS", "Mutant", "Verdict", "verdict"]
