"""One statement on one connection of libpq, by its own protocol: what goes out, and what an answer means.

libpq is used directly, as `psycopg.pq`: a statement then has an absolute deadline, both colours share the code, and a
notification is read where it comes, which psycopg's `notifies()` did not do in all versions.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, TransactionStatus

from interlock.core.errors import UnknownOutcome
from interlock.stores.postgresql.sessions import PING, in_transaction
from interlock.stores.sql.problems import Refused, breaks, broken, refusal
from interlock.stores.sql.statements import Statement, Texts

Row = tuple[str | None, ...]
_GOOD = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


@lru_cache(256)
def _encoded(words: str) -> bytes:
    return words.encode()


def send(pgconn: Any, statement: Statement) -> None:
    """Let a statement go out, as far as the socket takes it at once."""
    if statement.values:
        pgconn.send_query_params(_encoded(statement.words), [_text(value) for value in statement.values])
    else:
        pgconn.send_query(_encoded(statement.words))


def _text(value: Any) -> bytes:
    """Return a value as text of PostgreSQL; its type is that of the function's parameter."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return b"\\x" + value.hex().encode()
    if isinstance(value, bool):
        return b"t" if value else b"f"
    if isinstance(value, list):
        return b"{" + b",".join(_element(each) for each in value) + b"}"
    return str(value).encode()


def _element(value: Any) -> bytes:
    return b'"' + _text(value).replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def ended(pgconn: Any) -> bool:
    """Tell whether a connection has ended, as far as it is known."""
    return bool(pgconn.status == ConnStatus.BAD)


def rows_of(results: Sequence[Any], pgconn: Any, where: str) -> list[Row]:
    """Return the rows of the last result.

    Raises:
        Refused: the database did nothing.
        UnknownOutcome: the connection ended.
    """
    failure: Refused | UnknownOutcome | None = None
    rows: list[Row] = []
    for result in results:
        if result.status in _GOOD:
            rows = [
                tuple(_value(result.get_value(row, column)) for column in range(result.nfields))
                for row in range(result.ntuples)
            ]
        elif failure is None:
            failure = _failure_of(result, pgconn, where)
    if failure is None and ended(pgconn):
        failure = broken(where, "closed by the server")
    if failure is not None:
        try:
            raise failure
        finally:
            failure = None  # else it and this frame, and so all that called, hold each other
    return rows


def _value(found: bytes | None) -> str | None:
    return None if found is None else found.decode(errors="replace")


def _failure_of(result: Any, pgconn: Any, where: str) -> Refused | UnknownOutcome:
    code = (result.error_field(DiagnosticField.SQLSTATE) or b"").decode()
    text = (result.error_field(DiagnosticField.MESSAGE_PRIMARY) or result.error_message or b"").decode(
        errors="replace"
    )
    if breaks(code) or ended(pgconn):
        return broken(where, text.strip())
    return refusal(code, text, where)


def checked(pgconn: Any, where: str) -> None:
    """See that a new connection is in no transaction.

    Raises:
        StoreError: it is.
    """
    if pgconn.transaction_status != TransactionStatus.IDLE:
        raise in_transaction(where)


def messages_on(pgconn: Any) -> list[str]:
    """Return what has come on a connection that listens."""
    while not pgconn.is_busy() and pgconn.get_result() is not None:
        pass  # the answer to what it told itself
    messages = []
    while (note := pgconn.notifies()) is not None:
        messages.append(note.extra.decode(errors="replace"))
    return messages


def ask_itself(pgconn: Any, channel: str) -> None:
    """Let a connection that listens tell itself something, to find out whether it hears."""
    send(pgconn, Texts.notify([channel], [PING]))
    pgconn.flush()
