"""A client that races for an object of a bucket, for `storekit.race`."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from interlock.core.claims import Check
from interlock.core.errors import StoreError
from interlock.storekit.race import Racer
from interlock.storekit.race import race as race_of
from interlock.stores.bucket.lines import first_line, version_of


class BucketRacer(Racer[dict[str, str]]):
    """A store of obstore, and a path in it."""

    def __init__(self, store: Any, path: str) -> None:
        self._store = store
        self._path = path

    def read(self) -> tuple[dict[str, str], bytes]:
        """See `Racer.read`."""
        answer = self._store.get(self._path)
        return version_of(answer.meta), bytes(answer.bytes())

    def write(self, version: dict[str, str] | None, body: bytes) -> bool:
        """See `Racer.write`."""
        try:
            self._store.put(self._path, body, mode=version or "create")
        except (AlreadyExistsError, PreconditionError, FileNotFoundError):
            return False
        except BaseError as error:
            raise StoreError(first_line(error)) from error
        return True

    def delete(self) -> None:
        """See `Racer.delete`."""
        with suppress(FileNotFoundError):
            self._store.delete(self._path)


def race(opened: Callable[[], Any], path: str, clients: int, rounds: int) -> list[Check]:
    """Let many clients write one object at the same moment; see `storekit.race.race`.

    Args:
        opened: returns a new store of obstore, with its own connections.
        path: the path of the object; it is deleted at the end.
        clients, rounds: their numbers.
    """
    stores = [opened() for _ in range(clients)]
    list(stores[0].list(path))  # raises if the bucket does not exist; on some servers a write would create it
    return race_of([BucketRacer(each, path) for each in stores], rounds)
