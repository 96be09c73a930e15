"""What `_quick.c` offers; `line` is a LineFile whose mutex the caller has."""

from interlock.stores.files.linefile import LineFile
from interlock.stores.files.opening import OpenFile

LAYOUT: tuple[int, ...]

def enter(
    line: LineFile,
    id: str,
    capacity: int,
    ttl: float,
    tail: bytes,
    token: str,
    others: dict[str, OpenFile],
    pid: int,
    /,
) -> int: ...
def join(
    line: LineFile, id: str, ttl: float, tail: bytes, pipe: int, token: str, others: dict[str, OpenFile], pid: int, /
) -> tuple[str, int] | None: ...
def leave(
    line: LineFile, id: str, capacity: int, token: str, others: dict[str, OpenFile], pid: int, /
) -> int | tuple[str, int]: ...
