"""The proof of the local hand-off: a waiter of the same process is let in before the server knows of it."""

from proof.handoff.configurations import CONFIGURATIONS, Configuration
from proof.handoff.verdicts import Verdict, verdict

__all__ = ["CONFIGURATIONS", "Configuration", "Verdict", "verdict"]
