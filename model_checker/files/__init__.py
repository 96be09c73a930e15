"""The proof of the file store: the production code in a world of kills, expired leases and evictions."""

from __future__ import annotations

from typing import Any

from model_checker.changes import Mutant, changed
from model_checker.command import Proof
from model_checker.files.configurations import CONFIGURATIONS, Configuration
from model_checker.files.mutants import MUTANTS
from model_checker.files.steps import PACKAGE, Production
from model_checker.files.world import World
from model_checker.verdicts import Verdict, verdict


def check(configuration: Configuration, production: Production = PACKAGE) -> Verdict:
    """Return the verdict on one world, with the package's code or a mutant's."""
    return verdict(World(configuration, production), fair=True)


def catch(mutant: Mutant) -> Verdict:
    """Return the verdict on a mutant."""
    module: Any = changed(mutant.change)
    if hasattr(module, "acquire"):
        return check(mutant.world, Production(acquire=module.acquire))
    return check(mutant.world, Production(line=module) if hasattr(module, "settle") else Production(plan=module))


PROOF = Proof(CONFIGURATIONS, check, MUTANTS, catch)
