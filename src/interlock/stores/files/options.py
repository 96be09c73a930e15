"""What a URL of files may say behind its question mark: file:///folder?mode=0770&allow=virtiofs."""

import os
import re
from typing import Any
from urllib.parse import parse_qsl

from interlock.core.errors import InvalidArgument
from interlock.stores.files.machine import is_guest, is_network


def folder_meant(path: str) -> str:
    """Return the URL of a folder that was written without a scheme, from here, or without its first slash."""
    top = path.partition("/")[0]
    if top not in ("", ".", "..", "~") and os.path.isdir(f"/{top}"):
        return f"file:///{path}"
    return "file://" + os.path.abspath(os.path.expanduser(path))


def options(query: str) -> dict[str, Any]:
    """Return what a URL's query says, as arguments of `Folder`.

    Raises:
        InvalidArgument: an option that is not known, or a value that makes no sense.
    """
    found: dict[str, Any] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key in found:
            raise InvalidArgument(f"file:// has the option {key!r} twice")
        if key == "mode":
            found[key] = _mode(value)
        elif key == "allow":
            found[key] = _allowed(value)
        else:
            raise InvalidArgument(
                f"file:// has no option {key!r}; there are file:///folder?mode=0770 and file:///folder?allow=virtiofs"
            )
    return found


def _mode(text: str) -> int:
    if not re.fullmatch("0?[0-3]?7[07][07]", text):
        raise InvalidArgument(
            f"mode={text!r}: write 0700 (this user only), 0770 or 2770 (a group), 0777 or 1777 (everybody); who may "
            f"use the locks needs all rights in their folder"
        )
    return int(text, 8)


def _allowed(kind: str) -> str:
    if is_network(kind) or not is_guest(kind):
        raise InvalidArgument(
            f"allow={kind!r}: only a file system that a program or a host serves to this machine can be allowed, "
            f"like virtiofs or fuse.rclone; one that reaches several machines can't"
        )
    return kind
