"""Mutants with one safeguard removed: the checker must catch each.

Most are made from the source text of production code (`proof.changes`). Safeguards of the store are removed in the
world.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from proof.changes import Change, changed
from proof.pending.options import Options
from proof.pending.verdicts import Verdict, verdict
from proof.pending.world import Parts

PENDING = "interlock.core._async.pending"
CLAIMING = "interlock.core._async.acquire"
CALLER = "proof.caller"
LINE = "interlock.core.line"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A removed safeguard.

    Attributes:
        name: the missing safeguard.
        expected: the kind of finding.
        options: the world in which it is caught; the world itself may be the mutant.
        change: the change of the code; None if only the world is changed.
        fair: True to look for starvation.
    """

    name: str
    expected: str
    options: Options = field(default_factory=Options)
    change: Change | None = None
    fair: bool = False


def parts(change: Change | None) -> Parts:
    """Return the code under check, with the change in it; a change of `core.line` is one of the options."""
    if change is None or change.module == LINE:
        return Parts()
    module: Any = changed(change)
    if change.module == PENDING:
        return Parts(pending=module.AsyncPending)
    if change.module == CLAIMING:
        return Parts(acquire=module.acquire)
    # The changed caller must raise and catch the world's own errors, and use its requests.
    from proof import caller

    for name, value in vars(caller).items():
        if isinstance(value, type) and value.__module__ == CALLER:
            setattr(module, name, value)
    return Parts(caller=module.caller)


def judged(mutant: Mutant, limit: int | None = None) -> Verdict:
    """Explore a mutant's world.

    Args:
        mutant: the mutant.
        limit: stop after so many states.
    """
    options = mutant.options
    if mutant.change is not None and mutant.change.module == LINE:
        options = replace(options, steps=changed(mutant.change))
    return verdict(options, parts(mutant.change), fair=mutant.fair, limit=limit)
