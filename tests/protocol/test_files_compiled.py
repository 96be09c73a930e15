"""The compiled fast paths of the file store write what the ways in Python write, and answer the same.

`test_files_fast_path` holds the ways in Python to the plan, which the model checker drives.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlock.core.claims import SEPARATOR, Claim, LockSpec
from interlock.core.queue import OCCUPIED, REFUSED, Granted
from interlock.stores.files import FileStore, linefile, record
from interlock.stores.files import fastpath as fastpath
from interlock.stores.files.compiled import CompiledPath
from interlock.stores.files.keys import WAITING_AT, header
from interlock.stores.files.liveness import Liveness
from interlock.stores.files.opened import native
from interlock.stores.files.record import SLOT, tail, write_slot
from interlock.stores.files.wakeups import ThreadFileWakeup
from tests.support.listeners import NotingWakeup

KEY = f"{SEPARATOR}name"
ME = "me"
DEAD = "1-000000000000"
NEW = 10**12  # fences that a test did not write are numbers of microseconds since 1970

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("INTERLOCK_PURE")), reason="INTERLOCK_PURE leaves the compiled ways out"
)


def test_the_compiled_ways_are_there() -> None:
    assert native is not None, "they were not built: is there a C compiler?  ./dev test installs the package again"


def test_they_know_the_layout_of_the_files() -> None:
    assert native is not None
    assert native.LAYOUT == (
        record.SLOT,
        WAITING_AT,
        fastpath.NUMBER_AT,
        fastpath.NUMBER_END,
        record.UNTIL_AT,
        record.UNTIL_WIDTH,
        record.ID_AT,
        record.ID_WIDTH,
        record.TAIL_AT,
        linefile.SPINS,
        linefile.MOST_IDLE,
    )


def test_the_stub_says_what_the_module_has() -> None:
    assert native is not None
    stub = ast.parse(Path(native.__file__).with_name("_quick.pyi").read_text())
    functions = {each.name: each for each in stub.body if isinstance(each, ast.FunctionDef)}
    constants = {each.target.id for each in stub.body if isinstance(each, ast.AnnAssign)}  # type: ignore[union-attr]
    assert {*functions, *constants} == {name for name in vars(native) if not name.startswith("__")}
    for name, function in functions.items():
        parameters = function.args.posonlyargs
        names = ", ".join(each.arg for each in parameters)
        assert str(inspect.signature(getattr(native, name))) == f"({names}, /)"
        assert ast.unparse(function.args).endswith(", /")
        with pytest.raises(TypeError, match=rf"exactly {len(parameters)} arguments"):
            getattr(native, name)()


def test_the_module_can_be_made_again_and_forgotten() -> None:
    """It has no static state: a second one works beside the first, and goes without it."""
    assert native is not None
    specification = importlib.util.spec_from_file_location(native.__name__, native.__file__)
    assert specification is not None
    assert specification.loader is not None
    for _ in range(100):
        second = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(second)
        assert second is not native
        assert second.LAYOUT == native.LAYOUT
        with pytest.raises(AttributeError):
            second.enter(None, ME, 1, 5.0, b"x" * (SLOT - record.TAIL_AT), "token", {})


def test_the_module_takes_what_the_stub_says(bench: Bench) -> None:
    """As `CompiledPath` calls it: with the types of the stub, in its order, and with what it answers."""
    assert native is not None
    end = tail(Claim(ME, LockSpec(KEY), ""), bench.here.token)
    common = (bench.here.token, bench.here.others)
    bench.put([FREE], [], False, None)
    assert type(native.enter(bench.line, ME, 1, 5.0, end, *common)) is int
    assert type(native.leave(bench.line, ME, 1, *common, bench.here.wakeups)) is int
    assert native.join(bench.line, ME, 5.0, end, 1, *common) is None  # nobody holds it
    bench.put([HELD], [], False, None)
    before, seconds = native.join(bench.line, ME, 5.0, end, 1, *common)
    assert (before, type(seconds)) == (bench.there.token, float)


class Row(NamedTuple):
    """A slot to be written.

    Attributes:
        state: using, pending or done, or "damaged" for no slot at all.
        number: the fence, or the place in line.
        whose: the process: mine, live, dead.
        capacity: of the claim.
        lease: seconds until it ends.
    """

    state: str
    number: int
    whose: str
    capacity: int = 1
    lease: float = 5.0


whose = st.sampled_from(["mine", "dead", "live", "live"])
capacities = st.sampled_from([1, 1, 1, 3])
leases = st.sampled_from([5.0, 5.0, 5.0, -5.0])
holder = st.builds(Row, st.sampled_from(["using", "done", "damaged"]), st.integers(1, 9), whose, capacities, leases)
waiter = st.builds(Row, st.sampled_from(["pending", "done"]), st.integers(1, 9), whose, capacities, leases)
holders = st.one_of(st.lists(holder, min_size=1, max_size=1), st.lists(holder, max_size=12))
waiters = st.lists(waiter, max_size=3, unique_by=lambda row: row.number)


class Bench:
    """A store on a real folder, and another process's liveness pipe in it."""

    def __init__(self, folder: Path) -> None:
        self.store = FileStore(str(folder))
        self.compiled = self.store._compiled
        self.here = self.store.liveness()
        self.there = Liveness(self.store.folder.alive)
        self.wakeups = {"mine": self.here.pipe(), "live": self.there.pipe(), "dead": SimpleNamespace(number=1)}
        self.here.is_alive(self.there.token)
        self.here.ring(self.there.token, self.wakeups["live"].number, None)  # opened here from now on
        self.line = self.store._line(KEY)
        self.line.guard()
        self.line.read_pending()
        self.line.unguard()
        self.base = 0.0

    def close(self) -> None:
        self.there.close()
        self.store.close()

    def text(self, row: Row, id: str) -> bytes:
        token = {"mine": self.here.token, "dead": DEAD, "live": self.there.token}[row.whose]
        claim = Claim(id, LockSpec(KEY, 1, row.capacity), "")
        until = max(0.0, self.base + row.lease)
        pipe = self.wakeups[row.whose].number
        return write_slot(f"{row.state:<8}".encode(), row.number, until, id, pipe, tail(claim, token))

    def put(self, using: list[Row], pending: list[Row], flag: bool, mine: int | None) -> None:
        """Write both files; the row `mine` gets the id of our claim."""
        self.base = monotonic()
        data = bytearray(header(KEY))
        data[WAITING_AT] = ord("1" if flag else "0")
        for at, row in enumerate(using):
            data += b"#" * SLOT if row.state == "damaged" else self.text(row, ME if at == mine else f"holder{at}")
        waits = b"".join(self.text(row, f"waiter{row.number}") for row in pending)
        for fd, content in ((self.line.fd, bytes(data)), (self.line.pending_fd, waits)):
            os.ftruncate(fd, 0)
            os.pwrite(fd, content, 0)
        self.heard()

    def files(self) -> tuple[bytes, bytes]:
        return os.pread(self.line.fd, 1 << 20, 0), os.pread(self.line.pending_fd, 1 << 20, 0)

    def image_top(self) -> int:
        data = self.line.guard()
        assert data is not None
        self.line.unguard()
        return self.line.image(data).top

    def heard(self) -> list[Granted | None]:
        """What was told to the waiters here and there."""
        return [self.wakeups["mine"].drain(), self.wakeups["live"].drain()]

    def image(self) -> tuple[Any, ...]:
        """What the files say; fences that are new and leases that are new are told from old ones only."""
        data = self.line.guard()
        assert data is not None
        try:
            image = self.line.image(data)
        finally:
            self.line.unguard()

        def plain(slot: Any) -> Any:
            until = round(slot.until - self.base) if slot.until else -5
            return slot._replace(raw=record.details(slot.raw), until=until, number=plainly(slot.number))

        using, waits = ([plain(slot) for slot in slots if slot.alive != DEAD] for slots in image[:2])
        for slots in (using, waits):
            slots[:] = [slot._replace(raw=slot.raw._replace(since=len(slot.raw.since))) for slot in slots]
        return sorted(using), waits, plainly(image.top), image.waiting

    def both(self, put: Callable[[], None], act: Callable[[], Any]) -> Any:
        """Do the same with the compiled ways and without; return the answer if nothing differs."""
        found = []
        for compiled in (self.compiled, None):
            self.store._compiled = compiled
            put()
            answer = act()
            told = [None if message is None else (message.id, plainly(message.fence)) for message in self.heard()]
            found.append((answer, self.image(), told))
        self.store._compiled = self.compiled
        assert found[0] == found[1]
        return found[0][0]


def plainly(number: int) -> int:
    """A number that the test wrote, or NEW."""
    return number if number < NEW else NEW


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "locks")
    yield made
    made.close()


many = settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def lawful(flag: bool, pending: list[Row]) -> list[Row]:
    """While the flag is down nobody waits: it is set in the step that puts the first waiter in line."""
    return pending if flag else [row for row in pending if row.state != "pending"]


def answered(result: Any) -> tuple[Any, ...]:
    """A result without what differs from time to time."""
    return result.state, plainly(result.fence)


@many
@given(holders, waiters, st.booleans(), st.booleans(), st.sampled_from([1, 1, 3]))
def test_entering_without_a_wakeup(
    bench: Bench, using: list[Row], pending: list[Row], flag: bool, wait: bool, capacity: int
) -> None:
    claim = Claim(ME, LockSpec(KEY, 1, capacity), "")
    bench.both(
        lambda: bench.put(using, lawful(flag, pending), flag, None),
        lambda: answered(bench.store.enter_now(claim, None, wait, False)),
    )


@many
@given(holders, waiters, st.booleans(), st.one_of(st.none(), st.integers(0, 3)), st.sampled_from([1, 1, 1, 3]))
def test_standing_in_line(
    bench: Bench, using: list[Row], pending: list[Row], flag: bool, mine: int | None, capacity: int
) -> None:
    claim = Claim(ME, LockSpec(KEY, 1, capacity), "")

    def act() -> Any:
        wakeup = NotingWakeup()
        return answered(bench.store.enter_now(claim, wakeup, True, False)), wakeup.watched

    bench.both(lambda: bench.put(using, lawful(flag, pending), flag, mine), act)


@many
@given(holders, waiters, st.booleans(), st.integers(0, 3), st.sampled_from([1, 1, 1, 3]))
def test_leaving(bench: Bench, using: list[Row], pending: list[Row], flag: bool, mine: int, capacity: int) -> None:
    claim = Claim(ME, LockSpec(KEY, 1, capacity), "")
    bench.both(lambda: bench.put(using, lawful(flag, pending), flag, mine), lambda: bench.store.leave_now(claim))


def damaged(data: bytes, start: int, seed: int) -> bytes:
    """Change some bytes behind `start` into others that such files have, and some into any."""
    chance = random.Random(seed)
    changed = bytearray(data)
    for _ in range(chance.randint(1, 12) if len(data) > start else 0):
        at = chance.randrange(start, len(data))
        changed[at] = chance.choice([*b"0000019./ =-ux\n", chance.randrange(256)])
    return bytes(changed)


@many
@given(holders, waiters, st.integers(0, 2**32))
def test_damage_leads_nobody_out_of_the_files(bench: Bench, using: list[Row], pending: list[Row], seed: int) -> None:
    """Whatever the files say, they keep their form, and no answer is one that the callers do not know."""
    assert bench.compiled is not None
    claim = Claim(ME, LockSpec(KEY), "")
    bench.put(using, pending, bool(pending), 0)
    for fd, start in ((bench.line.fd, bench.line.head), (bench.line.pending_fd, 0)):
        os.pwrite(fd, damaged(os.pread(fd, 1 << 20, 0), start, seed), 0)
    rows = [len(data) for data in bench.files()]
    results = [bench.compiled.enter(bench.line, claim, wakeup, True) for wakeup in (NotingWakeup(), None)]
    bench.compiled.leave(bench.line, claim)
    assert {result.state for result in results if result is not None} <= {"using", "pending", "occupied"}
    after = bench.files()
    assert [len(data) - was for data, was in zip(after, rows, strict=True)] in ([0, 0], [0, SLOT], [SLOT, 0])
    assert after[0].startswith(bench.line.heads)


HELD = Row("using", 4, "live")
MINE = Row("using", 4, "mine")
FREE = Row("done", 4, "live")
LAST = Row("pending", 1, "live")


def test_the_simple_steps_are_taken_by_the_compiled_ways(bench: Bench) -> None:
    claim = Claim(ME, LockSpec(KEY), "")
    compiled = bench.compiled
    assert compiled is not None
    bench.put([FREE], [], False, None)
    assert compiled.enter(bench.line, claim, None, True).state == "using"
    bench.put([HELD], [], False, None)
    assert compiled.enter(bench.line, claim, None, True) == OCCUPIED
    assert compiled.enter(bench.line, claim, None, False) == REFUSED
    for waits in ([], [LAST]):
        bench.put([HELD], waits, bool(waits), None)
        assert compiled.enter(bench.line, claim, NotingWakeup(), True).state == "pending"
    for waits in ([], [LAST], [LAST._replace(whose="mine")]):
        bench.put([MINE], waits, bool(waits), 0)
        assert compiled.leave(bench.line, claim) is True
        assert [each for each in bench.heard() if each] == [Granted("waiter1", bench.image_top())] * len(waits)


@pytest.mark.parametrize(
    ("using", "pending", "flag"),
    [
        pytest.param([], [], False, id="new"),
        pytest.param([HELD._replace(whose="dead")], [], False, id="held by the dead"),
        pytest.param([HELD._replace(lease=-5.0)], [], False, id="lease over"),
        pytest.param([HELD._replace(state="damaged")], [LAST], True, id="damaged"),
        pytest.param([HELD, HELD], [], False, id="held by two"),
        pytest.param([HELD], [LAST._replace(whose="dead")], True, id="the dead wait"),
        pytest.param([HELD], [LAST._replace(whose="dead"), LAST._replace(number=2)], True, id="the head is dead"),
        pytest.param([HELD], [LAST, LAST._replace(number=2, whose="dead")], True, id="the last is dead"),
        pytest.param([HELD], [LAST._replace(capacity=3)], True, id="a semaphore's claim waits"),
    ],
)
def test_what_is_less_simple_they_leave_alone(bench: Bench, using: list[Row], pending: list[Row], flag: bool) -> None:
    compiled = bench.compiled
    assert compiled is not None
    claim = Claim(ME, LockSpec(KEY), "")
    bench.put(using, pending, flag, None)
    before = bench.files()
    if not pending:
        assert compiled.enter(bench.line, claim, None, False) is None
    assert compiled.enter(bench.line, claim, NotingWakeup(), True) is None
    assert compiled.leave(bench.line, claim) is False
    assert bench.files() == before


@pytest.mark.parametrize(
    "pending", [[LAST, LAST._replace(number=2, whose="dead")], [LAST._replace(whose="dead"), LAST]]
)
def test_a_hand_over_that_leaves_a_dead_head_is_left_to_the_plan(bench: Bench, pending: list[Row]) -> None:
    assert bench.compiled is not None
    pending = [row._replace(number=number) for number, row in enumerate(pending, 1)]
    bench.put([MINE], pending, True, 0)
    before = bench.files()
    assert bench.compiled.leave(bench.line, Claim(ME, LockSpec(KEY), "")) is False
    assert bench.files() == before


def test_a_pipe_whose_name_is_gone_is_not_written_to(bench: Bench) -> None:
    assert bench.compiled is not None
    bench.put([MINE], [LAST], True, 0)
    (bench.store.folder.alive / f"{bench.there.token}.{bench.wakeups['live'].number}").unlink()
    before = bench.files()
    assert bench.compiled.leave(bench.line, Claim(ME, LockSpec(KEY), "")) is False
    assert bench.files() == before


def test_a_holder_whose_liveness_pipe_has_gone_out_is_none(bench: Bench) -> None:
    assert bench.compiled is not None
    bench.put([HELD], [], False, None)
    bench.there.forget()  # as the kernel does when a process dies
    assert bench.compiled.enter(bench.line, Claim(ME, LockSpec(KEY), ""), None, True) is None
    assert bench.store.enter_now(Claim(ME, LockSpec(KEY), ""), None, True, False).state == "using"


def test_a_folder_that_was_removed_is_noticed(bench: Bench) -> None:
    assert bench.compiled is not None
    claim = Claim(ME, LockSpec(KEY), "")
    bench.put([FREE], [], False, None)
    os.unlink(bench.store.folder.using / "name")
    bench.line.trusted = 0.0
    assert bench.compiled.enter(bench.line, claim, None, True) is None
    assert bench.store.enter_now(claim, None, True, False).state == "using"
    assert (bench.store.folder.using / "name").exists()


def test_while_another_process_has_the_guard_nothing_is_done(bench: Bench) -> None:
    assert bench.compiled is not None
    bench.put([FREE], [], False, None)
    line = linefile.LineFile(bench.store.folder, KEY)
    line.guard()
    try:
        assert bench.compiled.enter(bench.line, Claim(ME, LockSpec(KEY), ""), None, True) is None
    finally:
        line.unguard()
        line.close()


@pytest.mark.parametrize(
    "arguments", [(), (1,), (None, "id", 1, 1.0, b"x" * (SLOT - record.TAIL_AT), 0, "token", {})]
)
def test_wrong_arguments_are_an_error_and_no_crash(bench: Bench, arguments: tuple[Any, ...]) -> None:
    assert native is not None
    for function in (native.enter, native.join, native.leave):
        with pytest.raises((TypeError, AttributeError)):
            function(*arguments)


def test_without_the_interpreters_lock_they_touch_nothing_that_other_threads_close(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a free-threaded Python: what needs the pipes of others is done in Python, with the same end."""
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    opened = bench.store.opened
    free = CompiledPath(native, opened.fastpath, opened.liveness)
    claim = Claim(ME, LockSpec(KEY), "")
    bench.put([HELD], [], False, None)
    assert free.enter(bench.line, claim, None, True) is None
    assert free.enter(bench.line, claim, NotingWakeup(), True) is None
    bench.put([MINE], [LAST], True, 0)
    assert free.leave(bench.line, claim) is False
    bench.put([FREE], [], False, None)
    taken = free.enter(bench.line, claim, None, True)
    assert taken is not None
    assert taken.state == "using"
    assert free.leave(bench.line, claim) is True
    bench.store._compiled = free
    bench.put([MINE], [LAST], True, 0)
    assert bench.store.leave_now(claim) is True
    assert bench.heard()[1] == Granted("waiter1", bench.image_top())


@pytest.mark.parametrize("ttl", [float("nan"), float("inf"), -1e9, 1e11])
def test_a_lease_that_does_not_fit_is_left_to_others(bench: Bench, ttl: float) -> None:
    assert bench.compiled is not None
    bench.put([FREE], [], False, None)
    before = bench.files()
    assert bench.compiled.enter(bench.line, Claim(ME, LockSpec(KEY, ttl=ttl), ""), None, True) is None
    assert bench.files() == before


def test_a_claim_whose_id_does_not_fit_is_left_to_others(bench: Bench) -> None:
    assert bench.compiled is not None
    bench.put([FREE], [], False, None)
    for id in ("", "x" * 37, "\udc80"):
        assert bench.compiled.enter(bench.line, Claim(id, LockSpec(KEY), ""), None, True) is None


class Listener:
    """A wake-up of the store that sees the messages written to its pipe."""

    def __init__(self, store: FileStore) -> None:
        self.wakeup: ThreadFileWakeup = store.thread_wakeup()

    def hear(self, message: bytes) -> Granted | None:
        os.write(self.wakeup.pipe.fd, message)
        return self.wakeup.wait(1.0)


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (b"\n", None),
        (b"one 5\n", Granted("one", 5)),
        (b"one 5\n\ntwo 6\n", Granted("two", 6)),
        (b"two 6\n\n", Granted("two", 6)),
        (b"no number\n", None),
        (b"one 5\nno number\nthree\n", Granted("one", 5)),
        (b"\xff\xfe 7\n", Granted("\ufffd\ufffd", 7)),
        (b"one 12345678901234567890\n", None),
    ],
)
def test_messages_at_a_wakeup_pipe(bench: Bench, message: bytes, told: Granted | None) -> None:
    listener = Listener(bench.store)
    assert listener.hear(message) == told
    assert listener.wakeup.wait(0.0) is None
    listener.wakeup.close()


def test_the_death_of_somebody_watched_ends_the_wait(bench: Bench) -> None:
    wakeup = bench.store.thread_wakeup()
    wakeup.watch((bench.there.token,))
    bench.there.forget()
    assert wakeup.wait(60.0) is None
    assert not wakeup._watched
    wakeup.close()


def test_a_wait_ends_in_time_also_when_signals_come(bench: Bench) -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: came.append(number))
    wakeup = bench.store.thread_wakeup()
    main = threading.main_thread().ident
    assert main is not None
    wake = threading.Timer(0.05, lambda: signal.pthread_kill(main, signal.SIGUSR1))
    wake.start()
    started = monotonic()
    try:
        assert wakeup.wait(0.2) is None
    finally:
        wake.join()
        signal.signal(signal.SIGUSR1, before)
        wakeup.close()
    assert came == [signal.SIGUSR1]
    assert monotonic() - started >= 0.2


def test_an_exception_of_a_signal_handler_ends_the_wait(bench: Bench) -> None:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    wakeup = bench.store.thread_wakeup()
    main = threading.main_thread().ident
    assert main is not None
    wake = threading.Timer(0.05, lambda: signal.pthread_kill(main, signal.SIGUSR1))
    wake.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            wakeup.wait(60.0)
    finally:
        wake.join()
        signal.signal(signal.SIGUSR1, before)
        wakeup.close()
