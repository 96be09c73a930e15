"""What `_quick.c` offers; `line` is a LineFile whose mutex the caller has."""

from interlock.stores.files.linefile import LineFile
from interlock.stores.files.liveness import Bell

LAYOUT: tuple[int, ...]

def enter(
    line: LineFile,
    id: str,
    capacity: int,
    ttl: float,
    tail: bytes,
    token: str,
    others: dict[str, int],
    /,
) -> int: ...
def join(
    line: LineFile,
    id: str,
    ttl: float,
    tail: bytes,
    bell: int,
    token: str,
    others: dict[str, int],
    /,
) -> tuple[str, float] | None: ...
def leave(
    line: LineFile,
    id: str,
    capacity: int,
    token: str,
    others: dict[str, int],
    bells: dict[int, Bell],
    /,
) -> int: ...
