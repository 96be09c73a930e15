"""A queue on a store whose steps are generators still; it goes with the last of them."""

from collections.abc import Callable, Sequence
from typing import Any

from interlock.core.claims import Check, Claim, ClaimView
from interlock.core.errors import StoreError
from interlock.core.queue import EnterResult, Held, Renewed
from interlock.runtime import _aio as rt


class AsyncDrivenQueue:
    """The queue of a store, by performing its generators."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.node_of = store.node_of
        self.rest = store.rest

    @property
    def namespaces(self) -> "Callable[[], Any] | None":
        """What lists the namespaces; None if the store can't tell."""
        return None if self._store.namespaces is None else self._namespaces

    async def _namespaces(self) -> list[str]:
        return list(await rt.drive(self._store.namespaces()))

    async def enter(self, claim: Claim, waiter: Any, wait: bool, again: bool) -> EnterResult:
        result: EnterResult = await rt.drive(self._store.enter(claim, waiter, wait, again))
        return result

    async def leave(self, claim: Claim, done: float = 0.0, value: str = "") -> bool:
        return bool(await rt.drive(self._store.leave(claim)))

    async def renew(self, claims: Sequence[Claim]) -> list[Renewed]:
        return list(await rt.drive(self._store.renew(claims)))

    async def adopt(self, key: str, id: str, claim: Claim) -> Held | None:
        raise StoreError("this store can't hand a claim over yet")

    async def look(self, key: str) -> list[ClaimView]:
        return list(await rt.drive(self._store.look(key)))

    async def evict(self, key: str, id: str | None) -> int:
        return int(await rt.drive(self._store.evict(key, id)))

    async def doctor(self) -> list[Check]:
        # async only
        if self._store.adoctor is not None:
            return list(await self._store.adoctor())
        return list(await rt.offload(self._store.doctor))

    def subscribe(self) -> Any:
        # async only
        if rt.TASKS:
            return self._store.task_wakeup()
        return self._store.thread_wakeup()

    def set_doubt(self, doubt: Callable[[str], object]) -> None:
        """Let the store call a function with each claim that it may not have any more."""
        self._store.doubt = doubt

    async def aclose(self) -> None:
        # async only
        if rt.TASKS:
            await self._store.aclose()
            return
        self._store.close()

    def abort(self) -> None:
        """Nothing: the store finds out by itself which loops have ended."""
