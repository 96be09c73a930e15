"""The proof of the file store: the production code in a world of kills, expired leases and evictions."""

from __future__ import annotations

from typing import Any

from proof.changes import Mutant, changed
from proof.command import Proof
from proof.files.configurations import CONFIGURATIONS, Configuration
from proof.files.mutants import MUTANTS
from proof.files.steps import PACKAGE, Production
from proof.files.world import World
from proof.verdicts import Verdict, verdict


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
