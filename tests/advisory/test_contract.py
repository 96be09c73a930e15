"""The contract on advisory locks, in both colours; `conftest` skips the tests of features that they lack."""

from interlock.testing.contract import *  # noqa: F403
