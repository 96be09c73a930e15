"""A step of a line in one statement: the functions that the migration `0002_folded` makes in PostgreSQL.

They are for the steps that nothing is in the way of; all others are taken one statement after another, as on every
database, by processes that stand in the same lines.  Why that is safe stands in the migration.
"""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db import ProgrammingError

from interlock.core.claims import WRITER_UNITS
from interlock.django.statements import Mark, Statement

AGAIN = 60.0  # seconds before a database without the functions is asked for them again

DIGITS = 19  # of the highest fence; whoever may connect may send a notification with more

_ENTERING = {
    "key": "text", "id": "text", "wait": "boolean", "namespace": "text", "name": "text", "units": "bigint",
    "capacity": "bigint", "readers": "bigint", "host": "text", "pid": "bigint", "thread": "text", "label": "text",
    "since": "bigint", "ttl": "bigint",
}  # fmt: skip
_ENTER = Statement(
    "SELECT state, fence, clean FROM interlock_claim_enter("
    f"{', '.join(f'%s::{kind}' for kind in _ENTERING.values())})",
    tuple(map(Mark, _ENTERING)),
)
_LEAVE = Statement(
    "SELECT removed, told FROM interlock_claim_leave(%s::text, %s::text, %s::text[])",
    (Mark("key"), Mark("id"), Mark("here")),
)
_READY = Statement(
    "SELECT current_setting('transaction_isolation') = 'read committed' AND EXISTS ("
    "SELECT FROM pg_trigger WHERE tgrelid = to_regclass('interlock_claim') AND tgname = 'interlock_claim_inserted' "
    "AND tgenabled IN ('O', 'A')) AND has_function_privilege(to_regproc('interlock_claim_enter'), 'EXECUTE') "
    "AND has_function_privilege(to_regproc('interlock_claim_leave'), 'EXECUTE')",
    (),
)


class Entered(NamedTuple):
    """The answer to a claim that entered in one statement.

    Attributes:
        state: using, pending or refused.
        fence: the fencing token, when using.
        clean: False if a holder before it has let its lease end, who may still be committing.
    """

    state: str
    fence: int | None
    clean: bool


class Promoted(NamedTuple):
    """The claims that a leaving one has promoted; with the fence 0, one that is to look by itself."""

    id: str
    fence: int


class Functions:
    """The functions in one database, if they are there: a site may run before its migrations do."""

    def __init__(self) -> None:
        self._ready = False
        self._asked: float | None = None

    def are_ready(self, connection: Any) -> bool:
        """Tell whether the steps can be folded; asked once, and now and then while they can't be."""
        now = time.monotonic()
        if not self._ready and (self._asked is None or now - self._asked > AGAIN):
            self._asked = now
            ((found,),) = _READY.rows(connection)
            self._ready = bool(found)
        return self._ready

    def enter(self, connection: Any, **given: Any) -> Entered | None:
        """Ask for the lock; None if that must be done step by step.

        Args:
            connection: of the store's own.
            given: as for `claimlines.create`; and `wait`, False if a claim that must wait shall not be written.
        """
        rows = self._call(_ENTER, connection, readers=WRITER_UNITS, **given)
        return None if not rows or rows[0][0] == "unfolded" else Entered(*rows[0])

    def leave(self, connection: Any, key: str, id: str, here: Sequence[str]) -> list[Promoted] | None:
        """Take a claim out of its line, and promote whose turn comes; None if that must be done step by step.

        Args:
            connection: of the store's own.
            key, id: of the claim, as the table has them.
            here: ids of waiters that need no notification.
        """
        rows = self._call(_LEAVE, connection, key=key, id=id, here=list(here))
        if not rows or not rows[0][0]:
            return None
        return [promoted_in(line) for line in rows[0][1].splitlines()]

    def _call(self, statement: Statement, connection: Any, **given: Any) -> list[Any] | None:
        if not self.are_ready(connection):
            return None
        try:
            return statement.rows(connection, **given)
        except ProgrammingError:  # somebody has taken the functions away, or the right to call them
            self._ready, self._asked = False, time.monotonic()
            return None


def promoted_in(message: str) -> Promoted:
    """Return who is told by a line of `interlock_claim_leave`, or by a notification; no fence says 0."""
    id, _, fence = message.partition(" ")
    return Promoted(id, int(fence) if fence.isdecimal() and len(fence) <= DIGITS else 0)
