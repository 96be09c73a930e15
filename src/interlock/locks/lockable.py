"""The lock objects: what both colours share of one name, and of several as one."""

from collections.abc import Sequence
from typing import Any, TypeVar

from interlock.core.claims import LockSpec, kind_of
from interlock.core.errors import NotHeld
from interlock.locks.grants import BaseGrant, BaseGrants
from interlock.locks.owners import Owned
from interlock.locks.session import AcquireOptions, BaseSession, name_of

G = TypeVar("G", bound=BaseGrant | BaseGrants[Any])
HG = TypeVar("HG", bound=BaseGrant)
SG = TypeVar("SG", bound=BaseGrants[Any])


class BaseLockable(Owned[G]):
    """Whatever can be acquired: what it is called, how it is acquired, and who holds it by this object."""

    __slots__ = ("_options", "_session")

    _session: Any

    def __init__(self, session: BaseSession[Any], options: AcquireOptions) -> None:
        super().__init__()
        self._session = session
        self._options = options

    @property
    def name(self) -> str:
        """The name that is locked."""
        raise TypeError  # pragma: no cover

    def _keys(self) -> list[str]:
        raise TypeError  # pragma: no cover

    def _take(self, seconds: float | None, owner: Any) -> Any:
        """Acquire it for `owner`, the caller; a colour's own."""
        raise TypeError  # pragma: no cover

    def _stay(self, grant: G) -> None:
        """Let a fresh grant stay as long as this lock is kept at least."""
        raise TypeError  # pragma: no cover

    def _not_held(self, owner: str) -> NotHeld:
        """Return the error of a release by an owner, a thread or task, that holds nothing."""
        return NotHeld(
            f"this {owner} does not hold {self.name!r} by this lock object; to release from another {owner}, "
            f"call release() of the grant"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} on {self._session.where}>"


class BaseLock(BaseLockable[HG]):
    """One name to lock, with how to."""

    __slots__ = ()

    _spec: LockSpec

    def __init__(self, session: BaseSession[Any], spec: LockSpec, options: AcquireOptions) -> None:
        super().__init__(session, options)
        self._spec = spec  # type: ignore[misc]  # a slot of each colour's class

    @property
    def name(self) -> str:
        """The name that is locked."""
        return name_of(self._spec.key)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._session, self._spec, self._options)

    def __repr__(self) -> str:
        kind = kind_of(self._spec.units, self._spec.capacity)
        return f"<{type(self).__name__} {self.name!r} ({kind}) on {self._session.where}>"

    def _keys(self) -> list[str]:
        return [self._spec.key]

    def _stay(self, grant: HG) -> None:
        grant._stay_at_least(self._options.at_least)


class BaseAllLock(BaseLockable[SG]):
    """Several locks as one."""

    __slots__ = ()

    _parts: Sequence[Any]

    def __init__(self, session: BaseSession[Any], parts: Sequence[Any], options: AcquireOptions) -> None:
        super().__init__(session, options)
        self._parts = parts  # type: ignore[misc]  # a slot of each colour's class

    @property
    def name(self) -> str:
        """The names that are locked."""
        return ", ".join(part.name for part in self._parts)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._session, self._parts, self._options)

    def _keys(self) -> list[str]:
        return [part._spec.key for part in self._parts]

    def _stay(self, grant: SG) -> None:
        for part, each in zip(self._parts, grant, strict=True):
            part._stay(each)
