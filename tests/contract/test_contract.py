"""Every contract test, on every store of the table, with threads and with asyncio tasks."""

from interlock.testing.contract import *  # noqa: F403
