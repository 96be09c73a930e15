"""What `_fast_path.c` offers; `fd`, `mark` and `head` are those of a LineFile whose mutex the caller has."""

from interlock.stores.files.open_file import OpenFile

INTERFACE: int

def enter(
    fd: int,
    mark: int,
    head: bytes,
    id: str,
    capacity: int,
    ttl: float,
    tail: bytes,
    pipe: int,
    token: str,
    others: dict[str, OpenFile],
    pid: int,
    queued: bool,
    /,
) -> int | str | tuple[str, int, int]: ...
def leave(
    fd: int, mark: int, head: bytes, id: str, capacity: int, token: str, others: dict[str, OpenFile], pid: int, /
) -> int | str | tuple[str, int]: ...
