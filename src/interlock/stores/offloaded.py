"""A step store that blocks, for the tasks of an event loop: each call is made in another thread."""

from functools import partial
from typing import Any

from interlock.core.line import Origin


class OffloadedSteps:
    """As `stores._async.step_queue.AsyncSteps`.

    Args:
        steps: the same, as plain calls that may come from any thread.
    """

    def __init__(self, steps: Any) -> None:
        from interlock.runtime._aio import offload  # only programs with an event loop load asyncio

        self._steps = steps
        self.look_again: float = steps.look_again
        self.tell = steps.tell
        self.rest = getattr(steps, "rest", lambda: None)
        self.abort = steps.close
        self.step, self.keys, self.doctor, self.aclose = (
            partial(offload, call) for call in (steps.step, steps.keys, steps.doctor, steps.close)
        )
        if hasattr(steps, "renew_many"):
            self.renew_many = partial(offload, steps.renew_many)

    @property
    def origin(self) -> Origin:
        """The calling process."""
        origin: Origin = self._steps.origin
        return origin
