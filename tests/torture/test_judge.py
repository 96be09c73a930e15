"""The judge finds the violations in histories with one, and none in the others; all are written by hand."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.torture.history import Record, parsed
from tests.torture.judge import Verdict, judge
from tests.torture.plan import Plan, promises_of


class Told:
    """A history written by hand; times are in seconds."""

    def __init__(self, **plan: Any) -> None:
        self.records: list[Record] = []
        self.say(0.0, "plan", "coordinator", plan=Plan("file:///x", **plan).as_json())
        self._ops = 0

    def say(self, t: float, event: str, process: str, **facts: Any) -> None:
        """Write a record."""
        self.records.append({"t": t, "p": process, "e": event, **facts})

    def ask(
        self, process: str, t: float, kind: str = "lock", timeout: float = 10.0, units: int = 1, of: int = 1
    ) -> int:
        """Let a process call acquire; return the number of the operation."""
        self._ops += 1
        self.say(
            t, "invoke", process, op=self._ops, kind=kind, names=["book"], timeout=timeout, ttl=1.0, units=units,
            capacity=of,
        )  # fmt: skip
        return self._ops

    def get(self, process: str, op: int, t: float, fence: int, until: float) -> None:
        """Let an operation hold the lock from `t` to `until`."""
        self.say(t, "ok", process, op=op, fences=[fence], ids=[f"id{op}"])
        self.say(until, "over", process, op=op)

    def hold(self, process: str, t: float, fence: int, until: float, **how: Any) -> int:
        """As `ask` and `get`."""
        op = self.ask(process, t, **how)
        self.get(process, op, t, fence, until)
        return op

    def fault(self, name: str, since: float, until: float, of: str = "", loses: bool = False) -> None:
        """Let a fault strike."""
        self.say(until, "fault", "coordinator", fault=name, since=since, of=of, loses=loses)

    def final(self, counter: str, writes: int, value: int, **left: Any) -> None:
        """End the history, with so many writes of a counter."""
        counters = [{"name": "book", "counter": counter, "writes": writes, "value": value}]
        self.say(100.0, "final", "coordinator", **{"counters": counters, "claims": [], "files": [], **left})

    def verdict(self) -> Verdict:
        """Return the verdict."""
        return judge(self.records)


def two_holders(told: Told) -> None:
    told.hold("0.0", 1.0, 1, 2.0)
    told.hold("1.0", 1.5, 2, 2.5)


def too_many_units(told: Told) -> None:
    for process in range(2):
        told.hold(f"{process}.0", 1.0 + process / 10, 1 + process, 2.0, kind="semaphore", units=2, of=3)


def beside_a_downgraded_writer(told: Told, kind: str, units: int) -> None:
    writer = told.hold("0.0", 1.0, 1, 2.0, kind="write", units=9, of=9)
    waiter = told.ask("1.0", 1.1, kind=kind, units=units, of=9)
    told.say(1.2, "queued", "1.0", op=waiter, id=f"id{waiter}")
    reader = told.ask("0.0", 2.0, kind="downgraded", timeout=0.0, of=9)
    told.say(2.1, "ok", "0.0", op=reader, fences=[1], ids=[f"id{writer}"])
    told.say(3.0, "over", "0.0", op=reader)
    told.get("1.0", waiter, 2.05, 2, 3.5)


def a_writer_beside_a_downgraded_one(told: Told) -> None:
    beside_a_downgraded_writer(told, "write", 9)


def a_fence_repeats(told: Told) -> None:
    told.hold("0.0", 1.0, 7, 2.0)
    told.hold("1.0", 3.0, 7, 4.0)


def a_fence_falls(told: Told) -> None:
    told.hold("0.0", 1.0, 7, 2.0)
    told.hold("1.0", 3.0, 6, 4.0)


def a_stale_write(told: Told) -> None:
    for t, fence in ((1.0, 8), (2.0, 7)):
        told.say(t, "write", "coordinator", name="book", counter="fenced", fence=fence, accepted=True)


def a_lost_fenced_update(told: Told) -> None:
    told.fault("stop", 1.0, 3.0, "0.0")
    told.final("fenced", 9, 8)


def a_lost_update(told: Told) -> None:
    told.final("plain", 9, 8)


def overtaken(told: Told) -> None:
    told.hold("0.0", 1.0, 1, 2.0)
    early = told.ask("1.0", 1.1)
    told.say(1.2, "queued", "1.0", op=early, id=f"id{early}")
    late = told.ask("2.0", 1.3)
    told.get("2.0", late, 2.1, 2, 2.2)
    told.get("1.0", early, 2.3, 3, 2.4)


def too_long(told: Told) -> None:
    told.hold("0.0", 1.0, 1, 9.0)
    told.say(9.1, "fail", "1.0", op=told.ask("1.0", 1.1, timeout=0.5))


def too_early(told: Told) -> None:
    told.hold("0.0", 1.0, 1, 9.0)
    told.say(2.0, "fail", "1.0", op=told.ask("1.0", 1.1, timeout=5.0))


def free_while_somebody_waits(told: Told) -> None:
    told.hold("0.0", 1.0, 1, 2.0)
    told.get("1.0", told.ask("1.0", 1.5), 6.0, 2, 7.0)


def an_error_without_a_fault(told: Told) -> None:
    told.say(1.1, "unknown", "0.0", op=told.ask("0.0", 1.0), error="StoreError", text="it is away")


def an_error_of_no_store(told: Told) -> None:
    told.fault("restart", 1.0, 2.0)
    told.say(1.1, "unknown", "0.0", op=told.ask("0.0", 1.0), error="TypeError", text="8 arguments")


def a_claim_left(told: Told) -> None:
    told.final("plain", 1, 1, claims=["book pending of 7"])


def a_connection_left(told: Told) -> None:
    told.final("plain", 1, 1, connections=["id=7 cmd=evalsha"])


def a_process_that_died_of_nothing(told: Told) -> None:
    told.say(9.0, "exit", "coordinator", of="0.0", status=1, hung=False)


def a_process_that_hangs(told: Told) -> None:
    told.say(9.0, "exit", "coordinator", of="0.0", status=-9, hung=True)


def a_run_is_repeated_though_it_is_recorded(told: Told) -> None:
    told.say(2.1, "done", "0.0", op=told.hold("0.0", 1.0, 1, 2.0, kind="once"))
    told.hold("1.0", 3.0, 2, 3.1, kind="once")


def a_run_is_skipped_though_nobody_completed_it(told: Told) -> None:
    told.say(2.1, "skipped", "0.0", op=told.ask("0.0", 1.0, kind="once"))


def a_healthy_holder_loses_its_lock(told: Told) -> None:
    told.fault("scatter", 0.9, 1.5)
    told.say(1.2, "lost", "0.0", op=told.hold("0.0", 1.0, 1, 1.1))


BAD: dict[Callable[[Told], None], str] = {
    two_holders: "overlap",
    too_many_units: "overlap",
    a_writer_beside_a_downgraded_one: "overlap",
    a_fence_repeats: "fence repeated",
    a_fence_falls: "fence fell",
    a_stale_write: "stale write",
    a_lost_fenced_update: "lost fenced update",
    a_lost_update: "lost update",
    overtaken: "order",
    too_long: "time-out",
    too_early: "gave up early",
    free_while_somebody_waits: "stall",
    an_error_without_a_fault: "error",
    an_error_of_no_store: "error",
    a_claim_left: "left over",
    a_connection_left: "left over",
    a_process_that_died_of_nothing: "death",
    a_process_that_hangs: "hang",
    a_run_is_repeated_though_it_is_recorded: "done twice",
    a_run_is_skipped_though_nobody_completed_it: "skipped",
    a_healthy_holder_loses_its_lock: "lost",
}


@pytest.mark.parametrize("tell", BAD, ids=lambda tell: tell.__name__)
def test_what_can_not_be_is_found_and_nothing_else(tell: Callable[[Told], None]) -> None:
    told = Told()
    tell(told)
    assert [each.rule for each in told.verdict().violations] == [BAD[tell]]


def a_lock_is_handed_over_by_a_token(told: Told) -> None:
    told.hold("0.0", 1.0, 7, 2.0, kind="token")
    waiter = told.ask("2.0", 1.5)
    told.say(1.6, "queued", "2.0", op=waiter, id=f"id{waiter}")
    told.hold("1.0", 2.1, 7, 3.0, kind="attach", timeout=0.0)
    told.get("2.0", waiter, 3.1, 8, 3.2)


def a_reader_comes_in_beside_a_downgraded_writer(told: Told) -> None:
    beside_a_downgraded_writer(told, "read", 1)


def an_evicted_holder_learns_it_late(told: Told) -> None:
    evicted = told.hold("0.0", 1.0, 1, 2.0)
    told.say(
        1.2, "evict", "2.0", op=told.ask("2.0", 1.2, kind="evict", timeout=0.0), id=f"id{evicted}", state="using"
    )
    told.hold("1.0", 1.5, 2, 2.5)
    told.say(2.1, "lost", "0.0", op=evicted)


def a_failed_run_is_followed_by_another(told: Told) -> None:
    told.hold("0.0", 1.0, 1, 2.0, kind="once")
    told.say(3.1, "done", "1.0", op=told.hold("1.0", 2.1, 2, 3.0, kind="once"))
    told.say(3.2, "skipped", "2.0", op=told.ask("2.0", 1.0, kind="once"))


@pytest.mark.parametrize(
    "tell",
    [
        a_lock_is_handed_over_by_a_token,
        a_reader_comes_in_beside_a_downgraded_writer,
        an_evicted_holder_learns_it_late,
        a_failed_run_is_followed_by_another,
    ],
    ids=lambda tell: tell.__name__,
)
def test_what_is_promised_is_no_violation(tell: Callable[[Told], None]) -> None:
    told = Told()
    tell(told)
    assert told.verdict().violations == []


ADVISORY = promises_of("postgresql+advisory://x/y")


def overtaken_in_its_process(told: Told) -> None:
    told.hold("0.0", 1.0, 1, 2.0)
    early = told.ask("1.0", 1.1)
    told.say(1.2, "queued", "1.0", op=early, id=f"id{early}")
    told.get("1.0", told.ask("1.0", 1.3), 2.1, 2, 2.2)
    told.get("1.0", early, 2.3, 3, 2.4)


def a_dead_holder_blocks_until_its_lease_ends(told: Told) -> None:
    told.say(1.0, "ok", "0.0", op=told.ask("0.0", 0.9), fences=[1], ids=["a"])
    told.fault("kill", 1.0, 1.0, "0.0")
    told.get("1.0", told.ask("1.0", 1.5), 4.1, 2, 5.0)


@pytest.mark.parametrize(
    ("tell", "rule"),
    [
        (overtaken_in_its_process, "order"),
        (a_dead_holder_blocks_until_its_lease_ends, "stall"),
    ],
)
def test_advisory_locks_are_judged_by_their_own_promises(tell: Callable[[Told], None], rule: str) -> None:
    told = Told(**ADVISORY)
    tell(told)
    assert [each.rule for each in told.verdict().violations] == [rule]


def two_holders_when_a_session_ends(told: Told) -> None:
    told.hold("0.0", 1.0, 1, 2.0)
    told.fault("cut", 1.2, 1.2, loses=True)
    told.hold("1.0", 1.5, 2, 2.5)


@pytest.mark.parametrize("tell", [overtaken, two_holders_when_a_session_ends])
def test_locks_that_end_with_a_session_promise_no_more(tell: Callable[[Told], None]) -> None:
    told = Told(**ADVISORY)
    tell(told)
    assert told.verdict().violations == []


def test_a_line_that_is_no_record_is_named() -> None:
    with pytest.raises(ValueError, match="line 2 "):
        list(parsed(['{"t": 1, "p": "0.0", "e": "calm"}\n', '{"t": 1, "p"']))
