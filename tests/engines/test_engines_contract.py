"""Every line of the contract that tasks play, by an `AsyncEngine` of psycopg and one of asyncpg."""

from interlock.testing.contract import *  # noqa: F403
