"""Errors that a change of the code might make, and the tests that find each: `./dev mutants` tries them all."""

from typing import NamedTuple


class Change(NamedTuple):
    """A text that occurs exactly once in a file of the project, and the text that replaces it."""

    file: str
    old: str
    new: str


class Mutant(NamedTuple):
    """One error.

    Attributes:
        name: what is then wrong with the code.
        changes: the changes that make the error.
        tests: arguments for pytest; one of these tests fails.
    """

    name: str
    changes: tuple[Change, ...]
    tests: str


def _error(name: str, tests: str, *texts: str) -> Mutant:
    """Return an error in src/interlock: file, old text and new text, as often as needed."""
    triples = zip(texts[::3], texts[1::3], texts[2::3], strict=True)
    return Mutant(name, tuple(Change(f"src/interlock/{file}", old, new) for file, old, new in triples), tests)


MUTANTS = [
    # -- partial failure ----------------------------------------------------------------------------
    _error(
        "partial: a connection is used again after an interrupt, transactions of threads",
        "tests/optimistic/test_faults.py -k interrupted",
        "optimistic/_sync/redis.py",
        "        self.broken = True  # until all replies have come\n",
        "",
    ),
    _error(
        "partial: the guard of a line is waited for 60 times as long",
        "tests/process/test_files_guard.py",
        "storekit/_sync/step_queue.py",
        "busy_limit = 5.0",
        "busy_limit = 300.0",
    ),
    # -- fork ---------------------------------------------------------------------------------------
    _error(
        "fork: a child keeps its parent's line files open",
        "tests/process/test_files_descriptors.py -k forked_child",
        "stores/files/steps.py",
        "        for line in (*self.lines.values(), *self._retired):\n            line.shut()\n",
        "",
    ),
    _error(
        "fork: a child keeps the liveness pipes of others open",
        "tests/process/test_files_descriptors.py -k forked_child",
        "stores/files/liveness.py",
        "            pipe.close()\n            del self.others[name]\n",
        "            del self.others[name]\n",
    ),
    # -- start and clean-up -------------------------------------------------------------------------
    _error(
        "start: a sweep takes a liveness pipe that is being made",
        "tests/process/test_files_descriptors.py -k when_it_is_locked",
        "stores/files/liveness.py",
        'self.is_alive(token) or (name.startswith(".") and self.is_alive(name))',
        "self.is_alive(token)",
    ),
    _error(
        "start: a dead waiter stays before the one that watches it",
        'tests/model_checker/test_proofs.py --thin -k "right_in and files"',
        "stores/files/write_plan.py",
        "            asked |= {places[max(0, at - 1)].liveness_token, place.liveness_token}\n",
        "            pass\n",
    ),
    _error(
        "start: who waits leaves the records of the dead in a register",
        "tests/contract/test_records.py -k records_of_the_dead",
        "core/_async/pending.py",
        "        if junk is not None:",
        "        if False:",
    ),
    # -- Django, and transactions on Redis ----------------------------------------------------------
    _error(
        "key locks: a release of a cancelled task is not finished",
        "tests/redis/keylock/test_interrupts.py -k any_turn",
        "keylock/_async/onekey.py",
        "or_undo(self._settle, partial(rt.finish_within, PATIENCE, self._leave), holding)",
        "self._leave(holding)",
    ),
    _error(
        "key locks: a forked child takes what its parent holds for its own",
        "tests/redis/keylock/test_owner.py -k forked",
        "keylock/clients.py",
        "if mine is not None and mine.pid == here:",
        "if mine is not None:",
    ),
    _error(
        "transactions: trouble that the function passes over commits without a guard",
        "tests/optimistic/test_refusals.py -k refused_watch",
        "optimistic/_async/redis.py",
        "        self._failure = error\n",
        "",
    ),
    _error(
        "Django: a pickle does not know that its transaction was rolled back",
        "tests/django/guarded/test_transactions.py -k pickle",
        "django/guarded/snapshot.py",
        "        return Snapshot, (self.db, self.settled().values)",
        "        return Snapshot, (self.db, self.values)",
    ),
    _error(
        "Django: a policy that names a computing field makes it no part of the state",
        "tests/django/guarded/test_policies.py",
        "django/guarded/model_fields.py",
        "named.get(field.name, LAST_WINS if attname in self.computing else named.get(OTHERS, REFUSE))",
        "LAST_WINS if attname in self.computing else named.get(field.name, named.get(OTHERS, REFUSE))",
    ),
    _error(
        "Django: an object is deleted in another state than If-Match names",
        "tests/django/guarded/test_rest.py -k before_the_deletion",
        "django/rest/views.py",
        "        with self._in_wanted_state(instance):\n            super().perform_destroy(instance)",
        "        super().perform_destroy(instance)",
    ),
    _error(
        "Django: a view that requires If-Match deletes without it",
        "tests/django/guarded/test_rest.py -k requires_it",
        "django/rest/views.py",
        'CHANGING = ("PUT", "PATCH", "DELETE")',
        'CHANGING = ("PUT", "PATCH")',
    ),
]
