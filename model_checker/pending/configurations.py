"""The table of worlds in which production code must be right."""

from __future__ import annotations

from dataclasses import dataclass, replace

from interlock.core import line
from model_checker.pending.options import (
    EXCLUSIVE,
    READER,
    WRITER,
    Fence,
    Options,
    Update,
    semaphore,
)


@dataclass(frozen=True, slots=True)
class Configuration:
    """One row of the table.

    Attributes:
        name: the world, as text.
        options: the world.
        fair: True to look for starvation too.
        live: True to look for deadlock and livelock.
        large, rare: checked only on request, or by the whole test suite only.
    """

    name: str
    options: Options
    fair: bool = False
    live: bool = True
    large: bool = False
    rare: bool = False


def _rows(group: str, *rows: tuple[str, Options], **how: bool) -> list[Configuration]:
    """Return the rows of one group; without faults and with ordered keys, starvation is checked too."""
    return [
        Configuration(
            f"{group}: {name}",
            options,
            fair=options.ordered and not options.leases and options.attempts is None,
            **how,
        )
        for name, options in rows
    ]


N2, N3, N4 = (EXCLUSIVE,) * 2, (EXCLUSIVE,) * 3, (EXCLUSIVE,) * 4
WRR = (WRITER, READER, READER)
WWRR = (WRITER, WRITER, READER, READER)
LEASES = Options(N2, leases=True, heartbeats=True)
ONCE = Options(N3, leases=True, attempts=1, lapses=1)
FENCES = Options(N2, leases=True, fence=Fence.ISSUED, attempts=2, lapses=2)
BAD = replace(FENCES, bad_clock=True, exclusion=False, one_using=True)
FOR_EVER = Options(N2, leases=True, bad_clock=True, exclusion=False, one_using=True)

LINE = Options(N2, ordered=True, steps=line, one_using=True)
LINE3 = replace(LINE, spec=N3)
LINE_LEASES = replace(LINE, leases=True)
LINE_ONCE = replace(LINE3, leases=True, attempts=1, lapses=1)
LINE_FENCES = replace(LINE_LEASES, fence=Fence.ISSUED, attempts=2, lapses=2)


WORLDS = (
    *_rows(
        "no leases",
        ("N=2, keys in any order", Options(N2)),
        ("N=2, keys ordered", Options(N2, ordered=True)),
        ("N=3, keys in any order", Options(N3)),
        ("N=3, keys ordered", Options(N3, ordered=True)),
    ),
    *_rows(
        "kinds",
        ("writer, reader, reader", Options(WRR, ordered=True)),
        ("writer, writer, reader, keys in any order", Options((WRITER, WRITER, READER))),
        ("semaphore 1/2, N=3", Options(semaphore(3, 2), ordered=True)),
        ("semaphore 1/2, N=3, keys in any order", Options(semaphore(3, 2))),
        ("semaphore 1/2, 2/2, 1/2", Options(((1, 2), (2, 2), (1, 2)), ordered=True)),
        ("exclusive, semaphore 1/2, 1/2 of one name", Options(((1, 1), (1, 2), (1, 2)), ordered=True)),
    ),
    *_rows(
        "one try",
        ("N=2", Options(N2, wait=False, attempts=1)),
        ("N=3", Options(N3, wait=False, attempts=1)),
    ),
    *_rows(
        "leases",
        ("N=2, late heartbeats", LEASES),
        ("N=2, late heartbeats, clocks looked at step by step", replace(LEASES, stepwise=True)),
        ("N=2, updates fail only if gone", replace(LEASES, update=Update.THERE)),
        ("writer, reader, reader, one call each, one lapse", replace(ONCE, spec=WRR, ordered=True)),
    ),
    *_rows(
        "crashes",
        ("N=2, two crashes", replace(LEASES, crashes=2)),
        ("N=3, one call each, one crash, keys ordered", replace(ONCE, ordered=True, lapses=0, crashes=1)),
    ),
    *_rows(
        "lost replies",
        ("N=2, one lost reply, no leases end", Options(N2, leases=True, lost=1, lapses=0)),
    ),
    *_rows(
        "broken off",
        ("N=2, cancelled anywhere, time-outs", Options(N2, cancels=None, timeouts=True)),
        ("N=2, time-outs, leases", Options(N2, timeouts=True, leases=True)),
        ("N=3, one call each, cancelled anywhere", Options(N3, cancels=None, attempts=1)),
    ),
    *_rows(
        "fences",
        ("N=2, drawn before, two calls each, two lapses", replace(FENCES, fence=Fence.DRAWN)),
        ("N=2, drawn before, two calls each, one crash", replace(FENCES, fence=Fence.DRAWN, lapses=1, crashes=1)),
    ),
    *_rows(
        "bad clock",
        ("N=2, any number of lapses", FOR_EVER),
        ("N=2, two calls each, two lapses, fences", BAD),
    ),
    *_rows(
        "line",
        ("N=2", LINE),
        ("N=3", LINE3),
        ("N=4", replace(LINE, spec=N4)),
        ("N=2, the store is busy at times", replace(LINE, busy=True)),
        ("N=3, one try each", replace(LINE3, wait=False, attempts=1)),
        ("writer, reader, reader", replace(LINE, spec=WRR)),
        ("writer, writer, reader, reader", replace(LINE, spec=WWRR)),
        ("semaphore 1/2, N=3", replace(LINE, spec=semaphore(3, 2))),
        ("semaphore 1/2, 2/2, 1/2", replace(LINE, spec=((1, 2), (2, 2), (1, 2)))),
        ("exclusive, semaphore 1/2, 1/2 of one name", replace(LINE, spec=((1, 1), (1, 2), (1, 2)))),
    ),
    *_rows(
        "line, leases",
        ("N=2, late heartbeats", replace(LINE_LEASES, heartbeats=True)),
        ("N=2, late heartbeats, clocks looked at step by step", replace(LINE_LEASES, heartbeats=True, stepwise=True)),
        ("N=2, the store is busy at times", replace(LINE_LEASES, busy=True)),
        ("N=3, one call each, one lapse", LINE_ONCE),
        ("writer, reader, reader, one call each, one lapse", replace(LINE_ONCE, spec=WRR)),
        ("semaphore 1/2, N=3, one call each, one lapse", replace(LINE_ONCE, spec=semaphore(3, 2))),
        (
            "N=2, any number of lapses, the store's clock is wrong",
            replace(LINE_LEASES, bad_clock=True, exclusion=False),
        ),
    ),
    *_rows(
        "line, crashes",
        ("N=2, two crashes", replace(LINE_LEASES, heartbeats=True, crashes=2)),
        ("N=3, one call each, one crash", replace(LINE_ONCE, lapses=0, crashes=1)),
    ),
    *_rows(
        "line, lost replies",
        ("N=2, one lost reply, no leases end", replace(LINE_LEASES, lost=1, lapses=0)),
        ("N=2, one call each, one lost reply, one lapse", replace(LINE_LEASES, lost=1, lapses=1, attempts=1)),
        (
            "N=2, a server's queue, one lost reply, no leases end",
            replace(LINE_LEASES, lost=1, lapses=0, gives_up=True),
        ),
        (
            "N=2, a server's queue, one call each, one lost reply, one lapse",
            replace(LINE_LEASES, lost=1, lapses=1, attempts=1, gives_up=True),
        ),
    ),
    *_rows(
        "line, broken off",
        ("N=2, cancelled anywhere, time-outs", replace(LINE, cancels=None, timeouts=True)),
        ("N=2, time-outs, leases", replace(LINE_LEASES, timeouts=True)),
        ("N=3, one call each, cancelled anywhere", replace(LINE3, cancels=None, attempts=1)),
    ),
    *_rows(
        "line, fences",
        ("N=2, three calls each, one lapse", replace(LINE_FENCES, attempts=3, lapses=1)),
        ("N=2, two calls each, two lapses, late heartbeats", replace(LINE_FENCES, heartbeats=True)),
        ("N=3, one call each, one lapse", replace(LINE_ONCE, fence=Fence.ISSUED)),
    ),
    *_rows(
        "line, fences",
        ("N=2, two calls each, one lapse, one lost reply", replace(LINE_FENCES, lapses=1, lost=1)),
        rare=True,
    ),
    *_rows("no leases", ("N=4, keys ordered", Options(N4, ordered=True)), rare=True),
    *_rows("kinds", ("writer, writer, reader, reader", Options(WWRR, ordered=True)), rare=True),
    *_rows("leases", ("N=3, one call each, one lapse", ONCE), rare=True),
    *_rows(
        "lost replies",
        ("N=2, one call each, one lost reply, one lapse", Options(N2, leases=True, lost=1, lapses=1, attempts=1)),
        rare=True,
    ),
    *_rows(
        "fences",
        ("N=3, drawn before, one call each, one lapse", replace(ONCE, fence=Fence.DRAWN, ordered=True)),
        rare=True,
    ),
    *_rows(
        "line",
        ("N=2, one lost reply, any number of lapses", replace(LINE_LEASES, lost=1)),
        ("N=2, a server's queue, one lost reply, any number of lapses", replace(LINE_LEASES, lost=1, gives_up=True)),
        ("N=3, two calls each, two lapses", replace(LINE_ONCE, attempts=2, lapses=2)),
        ("N=3, one call each, one crash, one lost reply, one lapse", replace(LINE_ONCE, crashes=1, lost=1)),
        large=True,
    ),
    *_rows("no leases", ("N=4, keys in any order", Options(N4)), large=True),
    *_rows(
        "kinds",
        ("writer, writer, reader, reader, any order", Options(WWRR)),
        ("semaphore 1/2, N=4", Options(semaphore(4, 2), ordered=True)),
        large=True,
    ),
    *_rows("one try", ("N=4", Options(N4, wait=False, attempts=1)), large=True),
    *_rows(
        "leases",
        ("N=3, keys ordered, two lapses", Options(N3, leases=True, ordered=True, lapses=2)),
        ("N=3, one call each, two lapses", replace(ONCE, lapses=2)),
        ("N=3, one call each, two lapses, updates fail only if gone", replace(ONCE, lapses=2, update=Update.THERE)),
        ("semaphore 1/2, N=3, one call each, two lapses", replace(ONCE, spec=semaphore(3, 2), lapses=2)),
        large=True,
    ),
    *_rows(
        "crashes",
        ("N=3, one call each, one crash, one lapse", replace(ONCE, crashes=1, ordered=True)),
        ("N=3, one call each, two crashes", replace(ONCE, crashes=2, lapses=0)),
        large=True,
    ),
    *_rows(
        "lost replies",
        ("N=2, one lost reply, any number of lapses", Options(N2, leases=True, lost=1)),
        ("N=2, one lost reply, one crash", Options(N2, leases=True, lost=1, crashes=1, lapses=1)),
        ("N=2, one call each, two lost replies, one lapse", Options(N2, leases=True, lost=2, lapses=1, attempts=1)),
        (
            "N=2, one call each, one lost reply, one broken off, one lapse",
            Options(N2, leases=True, lost=1, cancels=1, lapses=1, attempts=1, timeouts=True),
        ),
        ("N=3, one call each, one lost reply", replace(ONCE, lost=1, lapses=0, ordered=True)),
        large=True,
    ),
    *_rows(
        "broken off",
        ("N=2, cancelled anywhere, time-outs, leases", replace(LEASES, cancels=None, timeouts=True)),
        large=True,
    ),
    *_rows(
        "fences",
        ("N=2, three calls each, two lapses", replace(FENCES, attempts=3)),
        ("N=2, two calls each, a lapse, a crash, a lost reply", replace(FENCES, lapses=1, crashes=1, lost=1)),
        ("N=3, one call each, two lapses", replace(ONCE, fence=Fence.ISSUED, lapses=2)),
        live=False,
        large=True,
    ),
    *_rows(
        "bad clock",
        ("N=3, one call each, two lapses, fences", replace(BAD, spec=N3, attempts=1, ordered=True)),
        ("N=3, keys ordered, two lapses", replace(FOR_EVER, spec=N3, ordered=True, lapses=2)),
        live=False,
        large=True,
    ),
)
