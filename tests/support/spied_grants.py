"""Grants of either colour with a store, a watchdog and a session that note what they are asked."""

import asyncio
from inspect import isawaitable
from types import SimpleNamespace
from typing import Any

from interlock.client._async.grants import AsyncGrant, AsyncGrants, AsyncReentry
from interlock.client._sync.grants import Grant, Grants, Reentry
from interlock.core.claims import Claim, LockSpec
from interlock.runtime.sync import run

NOW, ENDS, TTL = 100.0, 130.0, 30.0


class Colour:
    """Grants of threads or of tasks with a store, a watchdog and a session that note what they are asked.

    Attributes:
        asked: what the store was asked, and the watchdog.
        answers: what the store answers, or raises.
        told: what those were told who listen.
    """

    def __init__(self, tasks: bool, clock: SimpleNamespace) -> None:
        self.tasks = tasks
        self.clock = clock
        self.asked: list[str] = []
        self.answers: dict[str, Any] = {"leave": True, "renew": True}
        self.told: list[str] = []
        self.watched: dict[str, Any] = {}
        self.watchdog: Any = SimpleNamespace(
            add=lambda grant: self.watched.update({grant.id: grant}),
            remove=lambda grant: self.watched.pop(grant.id, None) is not None,
            release_later=lambda grant: self.asked.append(f"later {grant.id}"),
            lost=lambda grant: self.asked.append(f"lost {grant.id}"),
            loop="its loop",
        )
        self.session: Any = SimpleNamespace(
            watchdog=self.watchdog,
            leave_now=None,
            aleave_now=None,
            listeners={"somebody": None},
            leaving={},
            tell=lambda kind, claim, **about: self.told.append(kind),
            leave=lambda claim: run(self.session.store.leave(claim)),
            store=SimpleNamespace(leave=self._leave, renew=self._renew),
        )

    def _answer(self, what: str) -> Any:
        answer = self.answers[what]
        if isinstance(answer, BaseException):
            raise answer
        return answer() if callable(answer) else answer

    def _leave(self, claim: Claim) -> Any:
        self.asked.append(f"leave {claim.id}")
        return self._answer("leave")
        yield

    def _renew(self, claims: Any) -> Any:
        self.asked.append(f"renew {claims[0].id}")
        return [self._answer("renew")]
        yield

    def grant(self, id: str = "a") -> Any:
        """Return a grant under watch whose lease ends at 130."""
        kind: Any = AsyncGrant if self.tasks else Grant
        made = kind((Claim(id, LockSpec(f"\0{id}", ttl=TTL)), 5, ENDS), True, None)
        made._session, made._owner = self.session, None
        if self.tasks:
            made._watchdog, made._body, made._struck = self.watchdog, None, False
        self.watched[id] = made
        return made

    def reentry(self, hold: Any) -> Any:
        """Return a handle on a hold."""
        return (AsyncReentry if self.tasks else Reentry)(hold)

    def several(self, *grants: Any) -> Any:
        """Return grants as one."""
        return (AsyncGrants if self.tasks else Grants)(grants)

    def do(self, answer: Any) -> Any:
        """Return what a method of either colour answers."""
        if not isawaitable(answer):
            return answer

        async def main() -> Any:
            return await answer

        return asyncio.run(main())
