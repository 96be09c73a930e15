"""How to connect by a URL, with libpq."""

import asyncio
import encodings.idna  # noqa: F401 - else the first host name loads it, which hangs in a child forked meanwhile
import math
from time import monotonic
from typing import Any

import psycopg
from psycopg._conninfo_attempts import conninfo_attempts
from psycopg._conninfo_attempts_async import conninfo_attempts_async
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import ConnStatus, PGconn, PollingStatus

from interlock.core.redaction import UNTOLD
from interlock.runtime.polling import READABLE, WRITABLE, poller
from interlock.stores.postgresql.aconnection import AsyncConnection
from interlock.stores.postgresql.engines import not_connected
from interlock.stores.postgresql.options import Options
from interlock.stores.sql.problems import Unreachable


class UrlFactory:
    """What makes connections by a URL.

    Args:
        url: as libpq reads it.
        options: what the URL says about the store.
    """

    def __init__(self, url: str, options: Options) -> None:
        self._url = url
        self.where = options.where
        self.options = options
        self.io_timeout = options.io_timeout

    @property
    def _how(self) -> dict[str, Any]:
        return {
            "client_encoding": "utf8", "connect_timeout": max(2, math.ceil(self.io_timeout)),
            "application_name": "interlock", "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3,
        }  # fmt: skip

    def dial(self) -> Any:
        """Return a new connection, with libpq's own as its `pgconn`, for a thread.

        Raises:
            Unreachable: nobody answers, or not now.
            Refused: the database does not let us in.
        """
        try:
            return _connected(make_conninfo(self._url, **self._how), self.io_timeout)
        except (psycopg.Error, UnicodeError) as error:
            if not self.options.torn:
                raise not_connected(error, self.where) from error
        raise Unreachable(f"{self.where} can't be reached; {UNTOLD}")

    async def aconnect(self) -> AsyncConnection:
        """As `dial`, for a task."""
        try:
            connection = await _aconnected(make_conninfo(self._url, **self._how), self.io_timeout)
            return AsyncConnection(connection, self.where)
        except (psycopg.Error, UnicodeError) as error:
            if not self.options.torn:
                raise not_connected(error, self.where) from error
        raise Unreachable(f"{self.where} can't be reached; {UNTOLD}")


def _connected(conninfo: str, io_timeout: float) -> "_Connection":
    """Return a connection to the first host and address that lets us in.

    libpq itself, which is asked in steps here, would wait for the first one without a limit.
    """
    until, failed = monotonic() + io_timeout, []
    attempts = conninfo_attempts(conninfo_to_dict(conninfo))
    for number, attempt in enumerate(attempts, 1):
        try:
            return _Connection(make_conninfo("", **attempt), _share(until, number == len(attempts)))
        except psycopg.OperationalError as error:
            failed.append(str(error).strip())
    raise psycopg.OperationalError("; ".join(dict.fromkeys(failed)))


async def _aconnected(conninfo: str, io_timeout: float) -> Any:
    """As `_connected`, for a task."""
    until, failed = monotonic() + io_timeout, []
    attempts = await conninfo_attempts_async(conninfo_to_dict(conninfo))
    for number, attempt in enumerate(attempts, 1):
        share = _share(until, number == len(attempts))
        try:
            async with asyncio.timeout(share):
                return await psycopg.AsyncConnection.connect(
                    make_conninfo("", **attempt), autocommit=True, prepare_threshold=None
                )
        except TimeoutError:
            failed.append(f"no answer within {share:.3g} s")
        except psycopg.OperationalError as error:
            failed.append(str(error).strip())
    raise psycopg.OperationalError("; ".join(dict.fromkeys(failed)))


def _share(until: float, last: bool) -> float:
    """Return how long one address may take: half of what is left, so that the step is done in time as well."""
    return max(0.0, until - monotonic()) / (1 if last else 2)


class _Connection:
    """A connection of libpq alone: one of psycopg that an interrupt takes from its thread warns when it is collected.

    Args:
        conninfo: as libpq reads it.
        io_timeout: seconds until it must be there.
    """

    def __init__(self, conninfo: str, io_timeout: float) -> None:
        deadline = monotonic() + io_timeout
        self.pgconn = PGconn.connect_start(conninfo.encode())
        wanted: int = PollingStatus.WRITING
        while wanted != PollingStatus.OK:
            if wanted == PollingStatus.FAILED or self.pgconn.status == ConnStatus.BAD:
                raise psycopg.OperationalError(self.pgconn.error_message.decode(errors="replace"))
            poll = poller()
            poll.register(self.pgconn.socket, READABLE if wanted == PollingStatus.READING else WRITABLE)
            left = deadline - monotonic()
            if left <= 0 or not poll.poll(left * 1000 + 0.5):
                raise psycopg.OperationalError(f"no answer within {io_timeout:.3g} s")
            wanted = self.pgconn.connect_poll()
