"""Torture: processes that use locks while faults are made, what they saw, and a judge of that.

`plan` says what is done, `worker` does it and writes a history, `faults` makes what goes wrong, `coordinator` runs
both, `judge` reads the history and knows nothing else. `./dev torture` is its command.
"""

from tests.torture.coordinator import run
from tests.torture.judge import Verdict, judge
from tests.torture.plan import Plan

__all__ = ["Plan", "Verdict", "judge", "run"]
