"""Safeguards taken away, one at a time: each mutant must be caught.

Most are made from the source text of production code (`proof.changes`). Safeguards that are the store's are taken
away in the world.
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
    """A safeguard taken away.

    Attributes:
        name: what is missing or wrong.
        expected: the kind of finding.
        options: the world in which it is caught; it may be the world that is changed.
        change: of the code; None if only the world is changed.
        fair: look for starvation.
    """

    name: str
    expected: str
    options: Options = field(default_factory=Options)
    change: Change | None = None
    fair: bool = False


def parts(change: Change | None) -> Parts:
    """Return the code under check, with the change in it; that of a line is one of the options."""
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
        mutant: which.
        limit: give up after so many states.
    """
    options = mutant.options
    if mutant.change is not None and mutant.change.module == LINE:
        options = replace(options, steps=changed(mutant.change))
    return verdict(options, parts(mutant.change), fair=mutant.fair, limit=limit)
