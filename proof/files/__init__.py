"""The file store's folded line, checked: the production code in a world of kills, lapses and evictions."""

from proof.files.configurations import CONFIGURATIONS, Configuration
from proof.files.mutants import MUTANTS, Mutant
from proof.files.verdicts import Verdict, verdict

__all__ = ["CONFIGURATIONS", "Configuration", "MUTANTS", "Mutant", "Verdict", "verdict"]
