"""Torture: processes that use locks while faults are made, what they saw, and a judge of that.

`plan` says what is done, `worker` does it and writes a history, `faults` makes what goes wrong, `coordinator` runs
both, `judge` reads the history and knows nothing else. `interlock torture` is its command.
"""

from interlock.testing.torture.coordinator import run
from interlock.testing.torture.judge import Verdict, judge
from interlock.testing.torture.plan import Plan

__all__ = ["Plan", "Verdict", "judge", "run"]
