"""The local hand-off: who is let in before the server knows of it."""

from proof.handoff.configurations import CONFIGURATIONS, Configuration
from proof.handoff.verdicts import Verdict, verdict

__all__ = ["CONFIGURATIONS", "Configuration", "Verdict", "verdict"]
