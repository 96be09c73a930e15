"""The proof of the file store: the production code in a world of kills, expired leases and evictions."""

from proof.files.configurations import CONFIGURATIONS, Configuration
from proof.files.mutants import MUTANTS, Mutant
from proof.files.verdicts import Verdict, verdict

__all__ = ["CONFIGURATIONS", "Configuration", "MUTANTS", "Mutant", "Verdict", "verdict"]
