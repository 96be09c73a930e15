"""The store on files: file:///folder."""

try:
    import fcntl  # noqa: F401 - whether this is a POSIX system
except ModuleNotFoundError:
    from interlock.core.errors import StoreError

    raise StoreError(
        "file:// needs a POSIX system, for its locks and named pipes, and is the store where no URL is given: give "
        "that of a server, or memory:// (or set INTERLOCK_URL)"
    ) from None

from interlock.stores.files.store import FileStore, runtime_folder

__all__ = ["FileStore", "runtime_folder"]
