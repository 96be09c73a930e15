"""A step store for the tasks of a queue, on plain calls."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TypeVar, TypeVarTuple

from interlock.core.claims import Check
from interlock.core.line import StepNow, StepResult, Transition
from interlock.runtime._aio import offload, plain
from interlock.runtime.waiters import Notifier
from interlock.storekit._async.step_queue import AsyncStepStore
from interlock.storekit._sync.step_queue import StepStore

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class TaskSteps(AsyncStepStore):
    """A step store for tasks: a call that may block runs in a worker thread.

    Args:
        steps: the step store with plain calls.
    """

    def __init__(self, steps: StepStore) -> None:
        self._steps = steps
        self.poll_after = steps.poll_after

    @property
    def notifier(self) -> Notifier:
        return self._steps.notifier

    def _call(self, function: Callable[[*Ts], T], *args: *Ts) -> Coroutine[object, None, T]:
        return plain(function)(*args) if self._steps.never_blocks else offload(function, *args)

    def step(self, key: str, transition: Transition, *args: object) -> Coroutine[object, None, StepResult | None]:
        return self._call(self._steps.step, key, transition, *args)

    def step_now(self) -> StepNow | None:
        return self._steps.step if self._steps.never_blocks else None

    def renew_many(
        self, ids_by_key: Mapping[str, Sequence[str]]
    ) -> Coroutine[object, None, Mapping[str, StepResult]]:
        return self._call(self._steps.renew_many, ids_by_key)

    def keys(self, prefix: str) -> Coroutine[object, None, list[str]]:
        return self._call(self._steps.keys, prefix)

    def doctor(self) -> Coroutine[object, None, list[Check]]:
        return offload(self._steps.doctor)

    def aclose(self) -> Coroutine[object, None, None]:
        return self._call(self._steps.close)

    def abort(self) -> None:
        self._steps.close()

    def close_idle(self) -> object:
        return self._steps.close_idle()
