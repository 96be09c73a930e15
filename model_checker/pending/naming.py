"""Names of records: the id of a caller's current call is the caller's name; ids of earlier calls get other names.

By this renaming, states that differ only in ids become equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from model_checker.automaton import Automaton
from model_checker.explore import put
from model_checker.pending.options import NAMES
from model_checker.pending.store import Store

Flying = tuple[tuple[int, Any], ...]


def afresh(
    number: int, automata: Sequence[Automaton], store: Store, flying: Flying, locals_: list[int], same: bool
) -> tuple[Store, Flying, list[int]]:
    """Answer a request for a fresh id; the id before is used now.

    Args:
        number: the caller that asks.
        automata: the automata of all callers.
        store, flying, locals_: the parts of the state that may contain ids.
        same: True to answer with the old id (a mutant).

    Returns:
        The store, the requests in transit and the local states of all callers afterwards.
    """
    name = NAMES[number]
    taken = name + "'"
    asking = locals_[number]
    if same or taken not in automata[number].mentions(asking):  # the first id, or one that is not used (mutants)
        answered = automata[number].step(asking, name if same else taken)
        return store, flying, list(put(locals_, number, answered))
    used = _used(automata, store, flying, locals_)
    spare = next(spare for spare in map((name.lower() + "{}").format, range(1, 100)) if spare not in used)
    others = [automaton.rename(local, name, spare) for automaton, local in zip(automata, locals_, strict=True)]
    others[number] = automata[number].step(automata[number].rename(others[number], taken, name), taken)
    rows = tuple(row._replace(id=spare, lease=0) if row.id == name else row for row in store.rows)
    words = tuple(sorted((spare, *word[1:]) if word[0] == name else word for word in store.words))
    sent = [(who, request._replace(id=spare) if request.id == name else request) for who, request in flying]
    return Store(rows, store.issued, words), tuple(sorted(sent, key=repr)), others


def _used(automata: Sequence[Automaton], store: Store, flying: Flying, locals_: list[int]) -> set[object]:
    seen = [automaton.mentions(local) for automaton, local in zip(automata, locals_, strict=True)]
    words = {id for id, *_ in store.words}
    return words.union(*seen, (row.id for row in store.rows), (request.id for _, request in flying))
