"""Optimistic transactions on rows, by SQLAlchemy's ORM: commit if what was read is unchanged, else do it again."""

from interlock.optimistic.sqlalchemy.reads import write_row

__all__ = ["write_row"]
