"""The store on files: file:///folder."""

from interlock.stores.files.default import runtime_folder
from interlock.stores.files.store import FileStore

__all__ = ["FileStore", "runtime_folder"]
