"""The fast path of the file store leaves in the files what the plan would leave; and the order of its writes.

What is compared: the claims of live processes with their rows, numbers and leases, the highest fence, the flag, who
is told, and whom the waiter watches.  Not compared: what the dead left, of which the fast path may leave more.

The model checker drives `plan.PlannedStep` and repeats what `FileStore` does around it.  Here the repeated part is
held against the real store, on real files.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from interlock.core.claims import SEPARATOR, Claim, LockSpec
from interlock.core.queue import OCCUPIED, EnterResult, Granted
from interlock.stores.files import FileStore, linefile, opening, queue
from interlock.stores.files import fastpath as fastpath
from interlock.stores.files.keys import WAITING_AT, header
from interlock.stores.files.liveness import Liveness
from interlock.stores.files.plan import Flag, Image, Write
from interlock.stores.files.record import FREE, SLOT, Slot, tail, write_slot
from tests.support.listeners import NotingWakeup

KEY = f"{SEPARATOR}name"
SPEC = LockSpec(KEY, ttl=30.0)
NOW = 1000.0
ME = "me"
DEAD = "1-000000000000"

one_row = st.tuples(
    st.sampled_from(["using", "done", "damaged"]),
    st.integers(1, 9),  # the fence
    st.sampled_from(["mine", "dead", "live"]),
)
rows = st.one_of(st.lists(one_row, min_size=1, max_size=1), st.lists(one_row, max_size=6))
waiters = st.lists(st.sampled_from(["dead", "done", "live"]), max_size=3)


class Bench:
    """A store on a real folder whose clock stands still, and whose files can be set."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(queue, "monotonic", lambda: NOW)
        monkeypatch.setattr(fastpath, "monotonic", lambda: NOW)
        self.store = FileStore(str(folder))
        self.store._compiled = None
        monkeypatch.setattr(self.store._fastpath, "new_fence", lambda top: top + 1)
        self.other = Liveness(self.store.folder.alive)
        self.claim = Claim(ME, SPEC, "")
        self.line = self.store._line(KEY)
        self.line.guard()
        self.line.read_pending()
        self.line.unguard()

    def close(self) -> None:
        self.other.close()
        self.store.close()

    def text(self, state: str, number: int, id: str, whose: str) -> bytes:
        token = {"mine": self.store.liveness().token, "dead": DEAD, "live": self.other.token}[whose]
        padded = f"{state:<8}".encode()
        return write_slot(padded, number, NOW + 5, id, 0, tail(self.claim, token))

    def put(self, using: list[tuple[str, int, str]], pending: list[str], flag: bool, mine: int | None) -> None:
        """Write both files; the row `mine`, if it is in use, gets the id of our claim."""
        data = bytearray(header(KEY))
        data[WAITING_AT] = ord("1" if flag else "0")
        for row, (state, number, whose) in enumerate(using):
            id = ME if row == mine else f"holder{row}"
            data += b"#" * SLOT if state == "damaged" else self.text(state, number, id, whose)
        waits = b"".join(
            self.text(
                "done" if who == "done" else "pending", place, f"waiter{place}", "dead" if who == "done" else who
            )
            for place, who in enumerate(pending, 1)
        )
        for fd, content in ((self.line.fd, bytes(data)), (self.line.pending_fd, waits)):
            os.ftruncate(fd, 0)
            os.pwrite(fd, content, 0)

    def bytes(self) -> tuple[bytes, bytes]:
        return os.pread(self.line.fd, 1 << 20, 0), os.pread(self.line.pending_fd, 1 << 20, 0)

    def image(self) -> tuple[Any, ...]:
        """What the files say, as far as it matters: without texts, and without what the dead left."""
        data = self.line.guard()
        assert data is not None
        try:
            image: Image = self.line.image(data)
        finally:
            self.line.unguard()
        using = sorted(slot._replace(raw=b"") for slot in image.using if slot.alive != DEAD)
        waits = [slot._replace(raw=b"") for slot in image.pending if slot.alive != DEAD]
        return using, waits, image.top, image.waiting


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench(tmp_path / "locks", monkeypatch)
    yield made
    made.close()


many = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def lawful(flag: bool, pending: list[str]) -> list[str]:
    """While the flag is down nobody alive waits: it is set in the step that puts the first waiter in line."""
    return pending if flag else [who for who in pending if who != "live"]


@many
@given(using=rows, pending=waiters, flag=st.booleans(), wait=st.booleans())
def test_entering_without_a_wakeup_does_to_the_files_what_the_plan_does(
    bench: Bench, using: list[tuple[str, int, str]], pending: list[str], flag: bool, wait: bool
) -> None:
    pending = lawful(flag, pending)
    bench.put(using, pending, flag, None)
    before = bench.bytes()
    result = bench.store.enter_now(bench.claim, None, wait, False)
    if result == OCCUPIED and flag:
        assert bench.bytes() == before
        return
    after = bench.image()
    bench.put(using, pending, flag, None)
    data = bench.line.guard()
    assert data is not None
    planned = bench.store._enter_line(bench.line, data, bench.claim, None, wait, False)[0]
    bench.line.unguard()
    assert (result, after) == (planned, bench.image())


HELD, MINE = [("using", 1, "live")], [("using", 1, "mine")]


@many
@example(using=HELD, pending=["live"], flag=True, mine=None)
@example(using=HELD, pending=["dead", "live"], flag=True, mine=None)
@example(using=HELD, pending=["live", "dead", "live"], flag=True, mine=None)
@example(using=HELD, pending=["live", "dead"], flag=True, mine=None)
@example(using=HELD, pending=["dead"], flag=True, mine=None)
@example(using=HELD, pending=["dead"], flag=False, mine=None)
@given(
    using=rows,
    pending=waiters,
    flag=st.booleans(),
    mine=st.one_of(st.none(), st.integers(0, 5)),
)
def test_standing_in_line_does_to_the_files_what_the_plan_does(
    bench: Bench, using: list[tuple[str, int, str]], pending: list[str], flag: bool, mine: int | None
) -> None:
    pending = lawful(flag, pending)
    bench.store.liveness().ring = lambda token, number, told: None  # type: ignore[method-assign]
    wakeups = NotingWakeup(), NotingWakeup()
    bench.put(using, pending, flag, mine)
    result = bench.store.enter_now(bench.claim, wakeups[0], True, False)
    after = bench.image()
    bench.put(using, pending, flag, mine)
    data = bench.line.guard()
    assert data is not None
    planned = bench.store._enter_line(bench.line, data, bench.claim, wakeups[1], True, False)[0]
    bench.line.unguard()
    assert (result[:2], after) == (planned[:2], bench.image())
    assert wakeups[0].watched == wakeups[1].watched


@many
@example(using=MINE, pending=["live"], flag=True, mine=0)
@example(using=MINE, pending=["live", "dead"], flag=True, mine=0)
@example(using=MINE, pending=["live", "dead", "live"], flag=True, mine=0)
@example(using=MINE, pending=["dead", "live"], flag=True, mine=0)
@example(using=MINE, pending=["dead"], flag=False, mine=0)
@given(
    using=rows,
    pending=waiters,
    flag=st.booleans(),
    mine=st.integers(0, 5),
)
def test_leaving_does_to_the_files_what_the_plan_does(
    bench: Bench,
    using: list[tuple[str, int, str]],
    pending: list[str],
    flag: bool,
    mine: int,
) -> None:
    pending = lawful(flag, pending)
    messages: list[Granted] = []
    # Where both ways tell somebody: the quick one tells another process's waiter itself.
    bench.store.liveness().ring = lambda token, number, told: messages.append(told)  # type: ignore[method-assign]
    bench.put(using, pending, flag, mine)
    removed = bench.store.leave_now(bench.claim)
    after, told = bench.image(), [each for each in messages if each]
    bench.put(using, pending, flag, mine)
    messages.clear()
    assert removed == bench.store._do(KEY, lambda step: step.leave(ME))
    assert (after, told) == (bench.image(), [each for each in messages if each])


@many
@given(using=rows, pending=waiters, flag=st.booleans(), mine=st.integers(0, 5))
def test_renewing_does_to_the_files_what_the_plan_does(
    bench: Bench, using: list[tuple[str, int, str]], pending: list[str], flag: bool, mine: int
) -> None:
    pending = lawful(flag, pending)
    found = []
    for quickly in (True, False):
        bench.put(using, pending, flag, mine)
        token = bench.store.liveness().token
        change = partial(queue._renew_one, bench.claim, token)
        renew = partial(bench.store._fastpath.renew, bench.claim, token) if quickly else None
        found.append((bench.store._do(KEY, change, renew), bench.image()))
    assert found[0] == found[1]


@many
@given(using=rows)
def test_the_fast_path_is_taken_only_where_nobody_holds_or_waits(
    bench: Bench, using: list[tuple[str, int, str]]
) -> None:
    bench.put(using, [], False, None)
    before = bench.bytes()
    result = bench.store.enter_now(bench.claim, None, True, False)
    if any(state == "using" and whose != "dead" for state, _, whose in using):
        assert result == OCCUPIED
        assert bench.image()[0]
        return
    assert result == EnterResult(
        "using", 1 + max((number for state, number, _ in using if state != "damaged"), default=0)
    )
    if not any(state == "using" for state, _, _ in using):
        changed = [at for at, (old, new) in enumerate(zip(before[0], bench.bytes()[0], strict=False)) if old != new]
        assert all(bench.line.head <= at < bench.line.head + SLOT for at in changed)


def test_a_promoted_waiter_of_another_process_is_told_before_its_place_is_freed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.put([("using", 1, "mine"), ("done", 1, "dead")], ["live"], True, 0)
    done: list[Any] = []
    perform = linefile.LineFile.perform

    def performed(self: Any, writes: list[Any]) -> None:
        done.extend(writes)
        perform(self, writes)

    monkeypatch.setattr(linefile.LineFile, "perform", performed)
    monkeypatch.setattr(Liveness, "ring", lambda self, token, number, told: done.append(told))
    assert bench.store.leave_now(bench.claim) is True
    told = Granted("waiter1", 2)
    assert done.index(told) == len(done) - 3
    assert isinstance(done[0], Write)
    assert isinstance(done[0].slot, Slot)
    assert done[0].slot.id == "waiter1"
    assert done[-2:] == [Write("pending", 0, None), Flag(False)]


def test_the_first_fence_of_a_new_file_follows_the_floor_also_when_standing_in_line(bench: Bench) -> None:
    bench.store.folder.raise_floor(41)
    bench.put([], [], False, None)
    data = bench.line.guard()
    assert data is not None
    result = bench.store._enter_line(bench.line, data, bench.claim, None, True, False)[0]
    bench.line.unguard()
    assert result == EnterResult("using", 42)


def test_who_is_dead_before_it_can_be_watched_wakes_the_waiter_at_once(bench: Bench) -> None:
    wakeup = bench.store.thread_wakeup()
    try:
        wakeup.watch([DEAD])
        assert select.select([wakeup.pipe.fd], [], [], 0)[0]
    finally:
        wakeup.close()


def test_a_clean_up_that_was_cut_short_does_not_part_the_line_in_two(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = linefile.LineFile(bench.store.folder, KEY)
    unlink = os.unlink

    def killed(path: Any, **where: Any) -> None:
        unlink(path, **where)
        raise KeyboardInterrupt

    bench.put([("done", 7, "dead")], [], False, None)
    assert line.guard() is not None
    with monkeypatch.context() as patch:
        patch.setattr(opening.os, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            line.remove(7)
    line.unguard()
    data = bench.line.guard()
    assert data is not None
    bench.line.read_pending()
    bench.line.unguard()
    here = os.stat(bench.store.folder.pending / "name")
    assert os.fstat(bench.line.pending_fd).st_ino == here.st_ino
    assert os.fstat(bench.line.fd).st_nlink == 1
    line.close()


def test_a_freed_slot_keeps_its_fence() -> None:
    text = write_slot(b"using   ", 5, NOW, ME, 0, tail(Claim(ME, SPEC, ""), DEAD))
    assert b"number=0000000000000005" in FREE + text[len(FREE) :]
