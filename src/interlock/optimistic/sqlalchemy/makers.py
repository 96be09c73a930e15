"""What sessions are made of, for threads and for asyncio tasks."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker

from interlock.core.errors import InvalidArgument

_KINDS: dict[bool, tuple[type[Any], type[Any], str]] = {
    False: (Engine, sessionmaker, "transact() takes an Engine or a sessionmaker"),
    True: (AsyncEngine, async_sessionmaker, "atransact() takes an AsyncEngine or an async_sessionmaker"),
}


def maker_of(where: Any, tasks: bool) -> Callable[[], Any]:
    """Return what makes a session for each try.

    Args:
        where: an engine or a sessionmaker.
        tasks: True for those of asyncio.

    Raises:
        InvalidArgument: it is something else.
    """
    engine, maker, takes = _KINDS[tasks]
    if isinstance(where, engine):
        where = maker(where, expire_on_commit=False)
    if not isinstance(where, maker):
        shown = f"{type(where).__name__} (a session is used up by one try)" if isinstance(where, Session) else where
        raise InvalidArgument(f"{takes} of SQLAlchemy, not {shown}")
    made: Callable[[], Any] = where
    return made


def plain(session: Any) -> Session:
    """Return the session itself, which an AsyncSession stands before."""
    found: Session = session.sync_session if isinstance(session, AsyncSession) else session
    return found


def called_with(session: Any, function: Callable[[Session], Any]) -> Any:
    """Call a function that asks the database; what is returned for an AsyncSession is to be awaited."""
    return session.run_sync(function) if isinstance(session, AsyncSession) else function(session)
