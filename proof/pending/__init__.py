"""The proof of the pending protocol and of the line: production code in every interleaving, with all faults."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from proof.changes import Mutant, changed
from proof.command import Proof
from proof.pending.configurations import WORLDS, Configuration
from proof.pending.mutants import CALLER, LINE, MUTANTS, PENDING
from proof.pending.world import Parts, World
from proof.verdicts import Verdict, verdict


def check(row: Configuration) -> Verdict:
    """Return the verdict on production code in one world."""
    return verdict(World(row.options), live=row.live, fair=row.fair)


def catch(mutant: Mutant) -> Verdict:
    """Return the verdict on a mutant."""
    options = mutant.world
    parts = Parts()
    if mutant.change is not None:
        module: Any = changed(mutant.change)
        if mutant.change.module == LINE:
            options = replace(options, steps=module)
        elif mutant.change.module == PENDING:
            parts = Parts(pending=module.AsyncPending)
        elif mutant.change.module == CALLER:
            parts = Parts(caller=module.caller)
        else:
            parts = Parts(acquire=module.acquire)
    return verdict(World(options, parts), fair=mutant.fair)


PROOF = Proof(WORLDS, check, MUTANTS, catch)
