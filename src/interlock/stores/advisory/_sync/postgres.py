# Generated from _async/postgres.py by tools/unasync.py; change that one.
"""Requests to PostgreSQL for threads.

They use libpq directly in non-blocking mode, so that a caller can wait for a reply until a deadline.
"""

import math
from contextlib import suppress

import psycopg
from psycopg import pq

from interlock.core.errors import UnknownOutcome
from interlock.core.failures import Refused
from interlock.runtime import _threads as rt
from interlock.runtime import clock
from interlock.stores.advisory.session import IO_TIMEOUT, BaseSession, Rows, refusal

FLUSH = 0.001  # seconds between two attempts to send the rest of a request


def perform(session: BaseSession, text: str, seconds: float | None) -> Rows:
    """See `BaseSession.perform`, of a session with PostgreSQL."""
    try:
        if session.owes:
            with suppress(Refused):
                _answer(session, IO_TIMEOUT)
        session.owes = True  # before the request is sent: an interrupt may come at any line
        session.client.pgconn.send_query(text.encode())
        return _answer(session, math.inf if seconds is None else seconds)
    except psycopg.Error as error:
        raise session.broken(error) from error
    finally:
        session.over()


def _answer(session: BaseSession, seconds: float) -> Rows:
    plain, deadline = session.client.pgconn, clock.now() + seconds
    while (unsent := plain.flush()) or plain.is_busy():
        left = deadline - clock.now()
        if left <= 0:
            session.silent = True
            raise UnknownOutcome(f"No reply from PostgreSQL within {seconds:g} s. Check the server and the network.")
        rt.readable(session.fd, (), min(left, FLUSH) if unsent else left)
        plain.consume_input()  # also while sending: a server that can't write its reply stops reading
    found, failure = [], ("", "")
    while (result := plain.get_result()) is not None:
        if result.status == pq.ExecStatus.FATAL_ERROR:
            state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
            failure = state, result.error_message.decode(errors="replace").strip()
        for row in range(result.ntuples):
            values = [result.get_value(row, column) for column in range(result.nfields)]
            found.append(tuple(None if value is None else value.decode() for value in values))
    if plain.status != pq.ConnStatus.OK:
        raise session.broken(failure[1] or "closed by the server")
    session.owes = session.silent = False
    if any(failure):
        raise refusal(*failure)  # not kept in a local: its traceback would keep the caller's grant alive
    return found
