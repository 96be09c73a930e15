"""How a key is written: as the name of its files, and in the head of its line file.

The head is a magic line, which has the waiting flag, and the name and namespace, padded to whole slots.
"""

import json
import os
import re

from interlock.core.claims import SEPARATOR
from interlock.stores.files.folder import Folder
from interlock.stores.files.opening import NotOurs, read_file
from interlock.stores.files.record import SLOT

try:
    from _blake2 import blake2b  # that of hashlib, which loads OpenSSL first
except ImportError:
    from hashlib import blake2b

MOST_READABLE = 90  # bytes of a file name, which with the hash and what clean-ups add must not exceed 255
MAGIC = b"interlock line 1 head="
WAITING_AT = len(MAGIC) + 5 + len(" waiting=")
HEAD_MOST = 32 * SLOT  # of a name and a namespace of control characters, which JSON writes as six each
_DEFAULTS = re.compile(r"[a-z0-9][a-z0-9._:@+=,-]{0,99}")


def file_name(key: str) -> str:
    """Return the file name of a key: the name itself if it is plain, else a readable part and a 160-bit hash.

    No two keys share one, also where the file system does not tell capital letters from small ones.
    """
    namespace, _, name = key.partition(SEPARATOR)
    if not namespace and _DEFAULTS.fullmatch(name):
        return name
    words = re.sub(r"[^\w.-]+", "-", f"{namespace}.{name}".strip(".").lower())
    readable = words.encode()[:MOST_READABLE].decode(errors="ignore").strip("-.")
    # The same bytes whatever the locale says, or processes of two locales would lock two files.
    return os.fsdecode(f"{readable}~{blake2b(key.encode(), digest_size=20).hexdigest()}".encode())


def header(key: str) -> bytes:
    """Return the head of a line file: a magic line with the waiting flag, and the name."""
    namespace, _, name = key.partition(SEPARATOR)
    text = json.dumps({"name": name, "namespace": namespace}, ensure_ascii=False).encode()
    size = -(-(WAITING_AT + 2 + len(text) + 1) // SLOT) * SLOT
    return (MAGIC + b"%05d waiting=0\n" % size + text).ljust(size - 1) + b"\n"


def key_in(head: bytes) -> str | None:
    """Return the key that a line file's head tells, or None if it is no head of ours."""
    if not head.startswith(MAGIC):
        return None
    try:
        granted = json.loads(head[WAITING_AT + 2 :].partition(b"\n")[0])
        key = str(granted["namespace"]) + SEPARATOR + str(granted["name"])
        key.encode()
        return key
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def key_of(folder: Folder, name: str) -> str | None:
    """Return the key of a line file, or None if it is none.

    Raises:
        OSError: it can't be read.
    """
    try:
        return key_in(read_file(folder.using, name, folder.sharing, HEAD_MOST))
    except (FileNotFoundError, NotOurs):
        return None
