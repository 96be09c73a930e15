"""Optimistic transactions on rows, by SQLAlchemy's ORM: commit if what was read is unchanged, else do it again."""

from interlock.optimistic.sqlalchemy.sessions import AsyncSessionBackend, SessionBackend, write_row

__all__ = ["AsyncSessionBackend", "SessionBackend", "write_row"]
