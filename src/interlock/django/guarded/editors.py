"""The editors of a page: claims that exclude nobody, and that others who open the page are told of."""

from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.apps import apps
from django.core.exceptions import ObjectDoesNotExist
from django.db import connections, router
from django.utils.timesince import timesince
from django.utils.translation import gettext as _

from interlock.core.claims import MAX_LABEL, WRITER_UNITS, Claim, ClaimView, LockSpec, checked_name
from interlock.core.errors import LockError
from interlock.django.configured import locks
from interlock.django.rows import Row
from interlock.runtime import log
from interlock.runtime.sync import fresh_id, run


class Editor(NamedTuple):
    """Somebody who has opened the page of an object, and has not saved it yet.

    Attributes:
        name: the user's name.
        since: when they opened it.
    """

    name: str
    since: datetime

    def __str__(self) -> str:
        return _("Opened by %(name)s %(time)s ago, who may be editing it.") % {
            "name": self.name,
            "time": timesince(self.since),
        }


class EditedPage:
    """The page of an object, and one who looks at it.

    A store that can't be asked is logged: it is no reason not to show a page.

    Args:
        model: of the object.
        pk: its primary key.
        user: the one who looks at the page.
        lease: seconds after which whoever has not saved counts as gone.
    """

    def __init__(self, model: Any, pk: Any, user: Any, lease: float) -> None:
        self.name = checked_name(f"editing:{Row(model, pk).name}")
        self._lease = lease
        self._user = user
        self._who = f"user {user.pk}"

    def open(self) -> list[Editor]:
        """Note that the user has opened the page; return who else has."""
        try:
            self._sweep()
            mine, others = self._claims()
            spec = LockSpec(locks._key(self.name), 1, WRITER_UNITS, self._lease, str(self._user)[:MAX_LABEL])
            known = [Claim(claim.id, spec, self._who) for claim in mine[:1]]
            if not known or not run(locks.store.renew(known))[0]:
                run(locks.store.enter(Claim(fresh_id(), spec, self._who), None, False, False))
        except LockError as error:
            log.warn("could not note who edits %s: %s", self.name, error)
            return []
        return [Editor(claim.label, datetime.fromtimestamp(claim.since, UTC)) for claim in others]

    def leave(self) -> None:
        """Note that the user has saved the object."""
        try:
            for claim in self._claims()[0]:
                locks.evict(self.name, claim.id)
        except LockError as error:
            log.warn("could not note that nobody edits %s any more: %s", self.name, error)

    def _sweep(self) -> None:
        """Remove the claims of those who came, and did not save before their leases ended.

        A waiter removes what stands in its way, but here nobody waits.
        """
        register, key = getattr(locks.store, "register", None), locks._key(self.name)
        if register is None:
            return
        for record in run(_asked(register.list(key))):
            if record.expired:
                run(_asked(register.reap(key, record.id)))

    def _claims(self) -> tuple[list[ClaimView], list[ClaimView]]:
        """Return the user's own claims, and those of others."""
        claims = locks.claims(self.name)
        return [c for c in claims if c.thread == self._who], [c for c in claims if c.thread != self._who]


def _asked(request: Any) -> Any:
    answer = yield request
    return answer


def page(model: Any, pk: Any, user: Any, lease: float | None) -> EditedPage | None:
    """Return a page whose editors are noted; None where they are not."""
    if lease is None or not apps.is_installed("interlock.django"):
        return None
    database = connections[router.db_for_write(model)]
    if database.vendor == "sqlite" and database.in_atomic_block:
        return None  # under ATOMIC_REQUESTS a claim in the same file would wait for the request that makes it
    try:
        return EditedPage(model, pk, user, lease)
    except (LockError, ObjectDoesNotExist):
        return None  # an address that names no object
