"""A queue around another queue, with a fault."""

from typing import Any

from interlock.runtime import _aio as rt


def _step(step: str) -> Any:
    """Return the method that passes one step through the methods of the fault."""

    async def performed(self: "AsyncFaultyQueue", *args: Any) -> Any:
        fault = self._fault
        args = fault.before(step, args)
        seconds = fault.pause_before(step, args)
        if seconds is not None:
            await rt.sleep(seconds)
        answer = fault.instead(step, args)
        if answer is None:
            answer = await getattr(self._queue, step)(*args)
        seconds = fault.pause_after(step, args)
        if seconds is not None:
            await rt.sleep(seconds)
        return fault.after(step, args, answer)

    return performed


class AsyncFaultyQueue:
    """A queue that passes each step to another queue, through the methods of a fault.

    Args:
        queue: the real queue.
        fault: an `Around` of `testing.faults`.
    """

    enter = _step("enter")
    leave = _step("leave")
    renew = _step("renew")
    adopt = _step("adopt")
    look = _step("look")
    evict = _step("evict")
    delete_run_result = _step("delete_run_result")

    def __init__(self, queue: Any, fault: Any) -> None:
        self._queue = queue
        self._fault = fault
        self.doubt: Any = bool  # the watchdog sets it here
        queue.doubt = lambda id: self.doubt(id)

    def __getattr__(self, name: str) -> Any:
        """Return what is no step; a queue may lack what its store can't do, as records of runs."""
        return getattr(self._queue, name)

    async def aclose(self) -> None:
        self._fault.closed = True
        await self._queue.aclose()
