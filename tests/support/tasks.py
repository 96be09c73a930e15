"""Tasks that a test cancels."""

import asyncio
from typing import Any

import pytest


async def cancelled(task: "asyncio.Task[Any]") -> None:
    """Cancel a task, and check that it ends by that."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
