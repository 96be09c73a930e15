"""The contract on advisory locks, in both colours; what needs a feature that they lack is skipped by `conftest`."""

from interlock.testing.contract import *  # noqa: F403
