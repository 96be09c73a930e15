"""One statement on one connection of libpq, by its own protocol: what goes out, and what an answer means.

libpq is used directly, as `psycopg.pq`: a statement then has an absolute deadline, both colours share the code, and a
notification is read where it comes, which psycopg's `notifies()` did not do in all versions.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus

from interlock.core.errors import UnknownOutcome
from interlock.stores.sql.problems import Refused, refusal

Row = tuple[str | None, ...]
_GOOD = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


@lru_cache(256)
def encoded(words: str) -> bytes:
    """Return a statement as it goes out."""
    return words.encode()


def parameters(values: Sequence[Any]) -> list[bytes]:
    """Return values as text of PostgreSQL; their types are those of the functions' parameters."""
    return [_text(value) for value in values]


def _text(value: Any) -> bytes:
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
    if not code or (code[:2] in ("08", "57") and code not in ("57014", "57P03")) or ended(pgconn):
        return broken(where, text.strip())
    return refusal(code, text, where)


def broken(where: str, why: object) -> UnknownOutcome:
    """Return the error of a connection that ended before the answer came."""
    return UnknownOutcome(f"the connection to {where} ended before the answer came: {why}")


def no_answer(where: str, seconds: float) -> UnknownOutcome:
    """Return the error of a database that does not answer in time."""
    return UnknownOutcome(f"{where} did not answer within {seconds:g} s: is it overloaded, paused, or cut off?")
