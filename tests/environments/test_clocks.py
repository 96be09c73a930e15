"""A user's test freezes the clock: time-outs still end, and a lock still has one holder."""

import pytest

from tests.environments.conftest import Run

HEAD = """
import sys, threading, time
from contextlib import contextmanager
if {before}:
    import interlock
import freezegun, time_machine
with {freezer}:
    import interlock
locks = interlock.connect(sys.argv[1])
before = locks.lock("before", ttl=2).acquire()
told = []
with {freezer}:
    told.append(locks.lock("before").acquire(timeout=0))
    told.append(locks.lock("before").acquire(timeout=0.2))
    grant = locks.lock("within", ttl=0.5, renew=False).acquire()
    told.append(before.held and grant.held and grant.fence > 0)
    grant = locks.lock("within").acquire(timeout=20)
    told.append(grant is not None)
    grant.release()
told.append(before.held and before.release())
print(told)
"""
FREEZERS = {
    "freezegun": 'freezegun.freeze_time("2012-01-14")',
    "time-machine": 'time_machine.travel("2042-01-14", tick=False)',
}


@pytest.mark.parametrize("before", [True, False], ids=["imported before", "imported within"])
@pytest.mark.parametrize("freezer", FREEZERS)
def test_a_frozen_clock_freezes_no_lock(freezer: str, before: bool, url: str, run: Run) -> None:
    pytest.importorskip("freezegun")
    pytest.importorskip("time_machine")
    told = run(HEAD.format(freezer=FREEZERS[freezer], before=before), url)
    assert told == "[None, None, True, True, True]"
