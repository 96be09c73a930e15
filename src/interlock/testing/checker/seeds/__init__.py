"""The lock of the seed documents, as it was published, with a verdict on each of its versions."""

from interlock.testing.checker.seeds.verdicts import Aftermath, Verdict, verdict, verdicts
from interlock.testing.checker.seeds.versions import VERSIONS, Version

__all__ = ["VERSIONS", "Aftermath", "Verdict", "Version", "verdict", "verdicts"]
