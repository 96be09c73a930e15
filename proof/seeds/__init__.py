"""The original scheme of the seed documents, as published, with a verdict on each of its versions."""

from proof.seeds.verdicts import Aftermath, Verdict, verdict, verdicts
from proof.seeds.versions import VERSIONS, Version

__all__ = ["VERSIONS", "Aftermath", "Verdict", "Version", "verdict", "verdicts"]
