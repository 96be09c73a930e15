"""The proof of the pending protocol and of the line: production code in every interleaving, with all faults."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from model_checker.changes import Mutant, changed
from model_checker.command import Proof
from model_checker.pending.configurations import WORLDS, Configuration
from model_checker.pending.mutants import CALLER, LINE, MUTANTS, PENDING
from model_checker.pending.world import Parts, World
from model_checker.verdicts import Verdict, verdict


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
