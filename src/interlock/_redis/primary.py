"""Which primary a connection leads to: each one has a replication id of its own, also after a fail-over."""

import re
from typing import Any

from interlock._redis.resp import ReplyError, pack

IDENTITY = pack("INFO", "replication")
_PRIMARY = re.compile(rb"role:master\b.*^master_replid:(\w+)", re.DOTALL | re.MULTILINE)


class Identity:
    """The replication id of the primary that the last new connection of a pool led to."""

    def __init__(self) -> None:
        self._id: bytes | None = None

    def differs(self, reply: Any) -> bool:
        """Tell whether a new connection leads to another primary than those before it, which then are not trusted.

        A replica has its primary's id, and refuses what matters by itself; where the access list forbids INFO,
        nothing is known.

        Args:
            reply: the answer to IDENTITY.
        """
        found = None if isinstance(reply, ReplyError) or reply is None else _PRIMARY.search(reply)
        if found is None:
            return False
        before, self._id = self._id, found[1]
        return before is not None and before != self._id


def nobody_cares() -> None:
    """Take the news of another primary where there is no subscription."""
