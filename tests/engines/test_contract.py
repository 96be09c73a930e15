"""Every line of the contract that tasks play, by an `AsyncEngine` of asyncpg."""

from interlock.testing.contract import *  # noqa: F403
