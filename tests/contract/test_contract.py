"""Every line of the contract, on every store of the table, played by threads and by asyncio tasks."""

from interlock.testing.contract import *  # noqa: F403
