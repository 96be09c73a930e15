"""Errors that somebody might make in the code, and the tests that notice each: `./dev mutants` tries them all."""

from typing import NamedTuple


class Change(NamedTuple):
    """A text in a file of the project, found there exactly once, and what the error makes of it."""

    file: str
    old: str
    new: str


class Mutant(NamedTuple):
    """One error.

    Attributes:
        name: what is wrong with the code then.
        changes: what makes it so.
        tests: what pytest is to run; one of them fails.
    """

    name: str
    changes: tuple[Change, ...]
    tests: str


def _contract(test: str, store: str = "memory") -> str:
    """Return a test of the contract, on one store."""
    return f"tests/contract/test_contract.py::{test} -k {store}"


def _error(name: str, tests: str, *texts: str) -> Mutant:
    """Return an error in src/interlock: file, old text and new text, as often as needed."""
    triples = zip(texts[::3], texts[1::3], texts[2::3], strict=True)
    return Mutant(name, tuple(Change(f"src/interlock/{file}", old, new) for file, old, new in triples), tests)


MUTANTS = [
    # -- time ---------------------------------------------------------------------------------------
    _error(
        "time: a shorter lease does not wake the watchdog of threads",
        _contract("test_a_short_lease_that_comes_beside_a_long_one_is_renewed_in_time"),
        "locks/sync/watchdog.py",
        "        if grant._due < self._wakes_at:\n            self._alarm",
        "        if self._wakes_at == math.inf:\n            self._alarm",
    ),
    _error(
        "time: a shorter lease does not wake the watchdog of tasks",
        _contract("test_a_short_lease_that_comes_beside_a_long_one_is_renewed_in_time"),
        "locks/aio/watchdog.py",
        "        if grant._due < self._wakes_at:\n            self._schedule(grant",
        "        if self._wakes_at == math.inf:\n            self._schedule(grant",
    ),
    _error(
        "time: a renewal by the watchdog of threads counts from after the reply",
        _contract("test_a_renewal_by_the_watchdog_is_counted_from_before_the_request"),
        "locks/sync/watchdog.py",
        "self._table.answered(grants, answers, sent)",
        "self._table.answered(grants, answers, time.monotonic())",
    ),
    _error(
        "time: a renewal by the watchdog of tasks counts from after the reply",
        _contract("test_a_renewal_by_the_watchdog_is_counted_from_before_the_request"),
        "locks/aio/watchdog.py",
        "self._table.answered(grants, answers, sent)",
        "self._table.answered(grants, answers, time.monotonic())",
    ),
    _error(
        "time: a store that was busy starts the clock of the lease anew",
        _contract("test_a_store_that_is_busy_extends_no_lease"),
        "core/acquire.py",
        "    if answer.asked:\n",
        "    if True:\n",
    ),
    _error(
        "time: a renewal that hangs delays what a loss does to a task",
        _contract("test_the_body_of_a_task_is_cancelled_at_the_deadline_though_a_renewal_hangs"),
        "locks/aio/watchdog.py",
        "        finally:\n            self._rest()",
        "        finally:\n            if not self._tasks:\n                self._rest()",
    ),
    _error(
        "time: a renewal that hangs delays what a loss does to a thread",
        _contract("test_the_loss_is_known_at_the_deadline_though_a_renewal_hangs"),
        "locks/sync/watchdog.py",
        "            self._renewers.hand_over(due)\n",
        "            self._renew(due)\n",
    ),
    _error(
        "time: the first renewal is asked for at 90 % of the lease",
        _contract("test_each_renewal_is_asked_for_at_a_third_of_the_lease"),
        "locks/grants.py",
        "self._due = deadline - claim[1].ttl * (2 / 3)",
        "self._due = deadline - claim[1].ttl * (1 / 10)",
    ),
    _error(
        "time: later renewals are asked for at 90 % of the lease",
        _contract("test_each_renewal_is_asked_for_at_a_third_of_the_lease"),
        "locks/grants.py",
        "self._due = self._deadline - ttl * (2 / 3)",
        "self._due = self._deadline - ttl * (1 / 10)",
    ),
    _error(
        "time: a clock that is set back gives a line in files a fence again",
        "tests/process/test_folder.py -k clock_was_set_back",
        "stores/files/steps.py",
        "            before = before._replace(top=self.folder.floor())\n",
        "            pass\n",
    ),
    # -- partial failure ----------------------------------------------------------------------------
    _error(
        "partial: releasing several stops at the first failure, threads",
        _contract("test_a_release_that_failed_for_some_can_be_tried_again"),
        "locks/sync/grants.py",
        "            failure = failure or error\n    if failure",
        "            failure = failure or error\n            break\n    if failure",
    ),
    _error(
        "partial: releasing several stops at the first failure, tasks",
        _contract("test_a_release_that_failed_for_some_can_be_tried_again"),
        "locks/aio/grants.py",
        "            failure = failure or error\n    if failure",
        "            failure = failure or error\n            break\n    if failure",
    ),
    _error(
        "partial: closing stops at the first failure, threads",
        _contract("test_a_close_that_can_not_release_says_so_and_closes_all_the_same"),
        "locks/sync/closing.py",
        "            if give_up_at_once:",
        "            if True:",
    ),
    _error(
        "partial: closing stops at the first failure, tasks",
        _contract("test_a_close_that_can_not_release_says_so_and_closes_all_the_same"),
        "locks/aio/closing.py",
        "        except BaseException as error:\n            failure = failure or error\n",
        "        except BaseException as error:\n            return error\n",
    ),
    _error(
        "partial: who can't give back a turn that came too late waits no more",
        "tests/fakes/test_trouble.py -k too_late",
        "core/acquire.py",
        "        return error\n    return None",
        "        raise error\n    return None",
    ),
    _error(
        "partial: a listener that fails keeps the others from being told",
        _contract("test_a_listener_that_fails_is_logged_and_holds_back_nobody"),
        "locks/events.py",
        "        except Exception:\n",
        "        except ZeroDivisionError:\n",
    ),
    _error(
        "partial: a listener that hangs holds back the renewals of others",
        _contract("test_a_listener_of_threads_that_hangs_at_a_renewal_holds_back_no_renewal"),
        "locks/sync/session.py",
        '_beside("interlock-events", _tell_each, grants, kind, reason)',
        "_tell_each(grants, kind, reason)",
    ),
    _error(
        "partial: a close that can not release does not close the store, threads",
        _contract("test_a_close_that_can_not_release_says_so_and_closes_all_the_same"),
        "locks/sync/closing.py",
        "        finally:\n            _close_store(session)\n    if failure",
        "        finally:\n            failure or _close_store(session)\n    if failure",
    ),
    _error(
        "partial: a close that can not release does not close the store, tasks",
        _contract("test_a_close_that_can_not_release_says_so_and_closes_all_the_same"),
        "locks/aio/closing.py",
        "        await _end(session)\n    if failure",
        "        if failure is None:\n            await _end(session)\n    if failure",
    ),
    _error(
        "partial: a connection is used again after an interrupt, the store",
        "tests/redis/store/test_closing.py",
        "_redis/pool.py",
        "        if owner is None:\n            connection.close()",
        "        if owner is None:\n            self._idle.append(connection)",
    ),
    _error(
        "partial: a connection is used again after an interrupt, a claim's first request",
        "tests/redis/store/test_closing.py",
        "_redis/pool.py",
        "            late.append(connection)\n",
        "            self._idle.append(connection)\n",
    ),
    _error(
        "partial: a connection is used again after an interrupt, transactions of threads",
        "tests/optimistic/test_faults.py -k interrupted",
        "optimistic/redis/_sync/connection.py",
        "        self.broken = True  # until all replies are there\n",
        "",
    ),
    _error(
        "partial: the guard of a line is waited for 60 times as long",
        "tests/process/test_files_guard.py",
        "stores/files/_sync/queue.py",
        "busy_limit = 1.0",
        "busy_limit = 60.0",
    ),
    _error(
        "partial: a broken connection of the ORM is used again",
        "tests/django/store/test_lines.py -k siblings",
        "django/pool.py",
        "            keep = sound and len(self._users) > 0 and slot.generation == self._generation",
        "            keep = len(self._users) > 0",
    ),
    _error(
        "partial: the siblings of a broken connection of the ORM are used again",
        "tests/django/store/test_lines.py -k siblings",
        "django/pool.py",
        "                self.drop()  # what broke one has broken the others",
        "                pass",
    ),
    _error(
        "partial: a stale connection of the ORM is used without asking",
        "tests/django/store/test_lines.py -k idle_for_long",
        "django/pool.py",
        "if monotonic() - slot.since < STALE or slot.wrapper.is_usable():",
        "if True:",
    ),
    # -- fork ---------------------------------------------------------------------------------------
    _error(
        "fork: a child keeps the mutex of memory",
        "tests/process/test_fork.py -k memory",
        "stores/memory.py",
        "        self.__init__()  # type: ignore[misc]",
        "        self.lines, self.fence = {}, 0",
    ),
    _error(
        "fork: a child keeps the cached commands to enter",
        "tests/process/test_fork.py -k 'hears and valkey'",
        "stores/redis/queue.py",
        "        self._enter_of.cache_clear()\n",
        "",
    ),
    _error(
        "fork: a child keeps the cached commands to leave",
        "tests/process/test_fork.py -k 'hears and valkey'",
        "stores/redis/queue.py",
        "        self._leave_of.cache_clear()\n",
        "",
    ),
    _error(
        "fork: a body that the child leaves raises its parent's loss",
        "tests/process/test_fork.py -k 'body and file'",
        "locks/grants.py",
        'whose parent has the lock."""\n        return self._loss() if self.lost and not self.inherited',
        'whose parent has the lock."""\n        return self._loss() if self.lost',
    ),
    _error(
        "fork: a body of several that the child leaves raises its parent's loss",
        "tests/process/test_fork.py -k 'body and file'",
        "locks/grants.py",
        "-> LockLost | None:\n        return self._loss() if self.lost and not self.inherited",
        "-> LockLost | None:\n        return self._loss() if self.lost",
    ),
    _error(
        "fork: a child keeps its parent's line files open",
        "tests/process/test_files_descriptors.py -k but_the_marker",
        "stores/files/steps.py",
        "        for line in self.lines.values():\n            line.shut()\n",
        "",
    ),
    _error(
        "fork: a child keeps its parent's liveness pipe and pipes open",
        "tests/process/test_files_descriptors.py -k but_the_marker",
        "stores/files/steps.py",
        "            self._liveness.forget()\n",
        "            pass\n",
    ),
    _error(
        "fork: a child keeps the liveness pipes of others open",
        "tests/process/test_files_descriptors.py -k but_the_marker",
        "stores/files/liveness.py",
        "            self.others.popitem()[1].close()\n",
        "            self.others.popitem()\n",
    ),
    # -- start and clean-up -------------------------------------------------------------------------
    _error(
        "start: a liveness pipe has its name before it is locked",
        "tests/process/test_files_descriptors.py -k only_when_it_is_locked",
        "stores/files/liveness.py",
        "            flock(made.fd, LOCK_EX | LOCK_NB)\n            os.rename(made.path, self._folder / token)"
        "  # others see it locked, or not at all\n",
        "            os.rename(made.path, self._folder / token)\n            flock(made.fd, LOCK_EX | LOCK_NB)\n",
    ),
    _error(
        "start: a sweep takes a liveness pipe that is being made",
        "tests/process/test_files_descriptors.py -k being_made",
        "stores/files/liveness.py",
        'self.is_alive(token) or (name.startswith(".") and self.is_alive(name))',
        "self.is_alive(token)",
    ),
    _error(
        "start: a name is removed though somebody waits for it",
        "tests/process/test_folder.py -k waits_in",
        "stores/files/steps.py",
        "or self._live(slots):\n                return False\n",
        "or any(place.state == USING for place in self._live(slots)):\n                return False\n",
    ),
    _error(
        "start: a dead waiter stays before the one that watches it",
        "tests/process/test_death.py -k file",
        "stores/files/plan.py",
        "            found += places[max(0, at - 1) : at + 1]\n",
        "            pass\n",
    ),
    _error(
        "start: the floor of the ORM is never raised",
        "tests/django/store/test_lines.py -k sweep",
        "django/sweeping.py",
        "        if not self._performer.statement(connection, claimlines.raise_floor).count(connection, fence=top):",
        "        if True:",
    ),
    _error(
        "start: the ORM lets claims pass those that stand aside",
        "tests/django/store/test_lines.py -k stood_aside",
        "django/claimlines.py",
        "before = Q(state__in=WAITING, number__lt",
        "before = Q(state=PENDING, number__lt",
    ),
    _error(
        "start: who waits leaves the records of the dead in a register",
        "tests/contract/test_register.py -k records_of_the_dead",
        "core/pending.py",
        "        if junk is not None:",
        "        if False:",
    ),
    # -- Lua ----------------------------------------------------------------------------------------
    _error(
        "Lua: who leaves does not count again after mixed capacities",
        _contract("test_when_the_smallest_capacity_leaves_the_next_one_counts", "valkey"),
        "_redis/scripts/leave.lua",
        " elseif mixed then sweep() end",
        " end",
    ),
    _error(
        "Lua: thousands are promoted and written in one step",
        "tests/redis/store/test_line.py",
        "_redis/scripts/head.lua",
        "local BATCH = 250",
        "local BATCH = 250000",
        "_redis/scripts/common.lua",
        "if #writes > 2000 then",
        "if false then",
    ),
    _error(
        "Lua: the waiters' keys do not live as long as the line",
        "tests/redis/store/test_line.py -k equally_long",
        "_redis/scripts/clock.lua",
        "  call('PEXPIREAT', waiters, kept)\n",
        "",
    ),
    _error(
        "Lua: the order's key does not live as long as the line",
        "tests/redis/store/test_line.py -k equally_long",
        "_redis/scripts/clock.lua",
        "  call('PEXPIREAT', order, kept)\n",
        "",
    ),
    _error(
        "Lua: the leases of waiters are not extended",
        _contract("test_a_waiter_keeps_its_place_for_many_leases", "valkey"),
        "_redis/scripts/lease.lua",
        "  call('HSET', waiters, id, renewed('', tonumber(ends), stop, u, c, fence, rest))\n",
        "",
    ),
    _error(
        "Lua: an evicted waiter is not woken",
        _contract("test_an_evicted_waiter_begins_again_at_the_end_of_the_line", "valkey"),
        "_redis/scripts/evict.lua",
        "for _, one in ipairs(woken) do told[#told + 1] = one end\n",
        "",
    ),
    _error(
        "Lua: an eviction hands nothing over",
        _contract("test_evicting_a_holder_lets_the_next_in_at_once", "valkey"),
        "_redis/scripts/evict.lua",
        "sweep()\nhand_over()\n",
        "sweep()\n",
    ),
    # -- the command --------------------------------------------------------------------------------
    _error(
        "command: it starts though the lock is lost",
        "tests/cli/test_run_lost.py -k starts_none",
        "cli/run.py",
        "        if grant.lost:\n            return LOST\n",
        "",
    ),
    _error(
        "command: it runs on after an error of ours has released the lock",
        "tests/cli/test_run_lost.py -k error_of_ours",
        "cli/run.py",
        "            self._child.discard()  # before the lock is released, whatever happened",
        "            pass",
    ),
    _error(
        "command: the wait is poked only once",
        "tests/cli/test_run_signals.py -k poked_again",
        "cli/signals.py",
        "        while self._breakable and not self._closed:",
        "        while False:",
    ),
    # -- Django, and transactions on Redis ----------------------------------------------------------
    _error(
        "key locks: a cancelled task does not wait for the reply to what it has sent",
        "tests/redis/keylock/test_interrupts.py -k cancelled",
        "keylock/_async/tokens.py",
        "await rt.finish_within(PATIENCE, self._try, attempt)",
        "await self._try(attempt)",
    ),
    _error(
        "key locks: a release of a cancelled task is not finished",
        "tests/redis/keylock/test_interrupts.py -k any_turn",
        "keylock/_async/tokens.py",
        "or_undo(self._settle, partial(rt.finish_within, PATIENCE, self._leave), holding)",
        "self._leave(holding)",
    ),
    _error(
        "key locks: a forked child takes what its parent holds for its own",
        "tests/redis/keylock/test_owner.py -k forked",
        "keylock/holdings.py",
        "if mine is not None and mine.pid == here:",
        "if mine is not None:",
    ),
    _error(
        "transactions: trouble that the function passes over commits without a guard",
        "tests/optimistic/test_refusals.py -k refused_watch",
        "optimistic/redis/_async/attempt.py",
        "        self._failure = error\n",
        "",
    ),
    _error(
        "Django: a pickle does not know that its transaction was rolled back",
        "tests/django/guarded/test_transactions.py -k pickle",
        "django/guarded/undo.py",
        "        return Scope, (True, self.undone)",
        "        return Scope, (True, False)",
    ),
    _error(
        "Django: a policy that names a field which computes its value is not heeded",
        "tests/django/guarded/test_policies.py",
        "django/guarded/saving.py",
        "        if field.attname in self.before and not self.plan.is_named(field.attname):",
        "        if field.attname in self.before:",
    ),
    _error(
        "Django: a policy that names a computing field makes it no part of the state",
        "tests/django/guarded/test_policies.py",
        "django/guarded/plan.py",
        "and not (field.attname in self.computing and not self.is_named(field.attname))",
        "and field.attname not in self.computing",
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
        '_CHANGING = ("PUT", "PATCH", "DELETE")',
        '_CHANGING = ("PUT", "PATCH")',
    ),
]
