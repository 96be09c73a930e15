"""Paths and file names of Windows; plain text functions, which every system can test."""

import ntpath
import re

from interlock.core.errors import InvalidArgument, StoreError
from interlock.core.options import path_url

EXAMPLE = "C:/locks"
LONGEST = 110
"""Characters of a folder's path whose longest file fits into MAX_PATH (260); a longer path gets the prefix."""
PREFIX = "\\\\?\\"
"""Begins a path that Windows takes as it is, up to 32,767 characters."""
DEVICE = r"(?:con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])"
SHORT_NAME = re.compile(rf"(?!{DEVICE}(?:\.|$))[a-z0-9][a-z0-9._@+=,-]{{0,99}}(?<!\.)")
"""No colon, which begins a stream; no dot at the end, which Windows drops; not the name of a device."""
_DEVICE_NAME = re.compile(rf"{DEVICE} *(?:\.|$)", re.IGNORECASE)
_DRIVE = re.compile(r"/[A-Za-z]:(?:[/\\]|$)")
_REFUSED = re.compile(r'[<>:"|?*\x00-\x1f]')


def readable(words: str) -> str:
    """Return the readable part of a file name so that it does not begin with the name of a device."""
    return f"_{words}" if _DEVICE_NAME.match(words) else words


def path_in_url(path: str) -> str:
    """Return the path that the path of a URL means: of file:///C:/locks it is C:/locks."""
    return path[1:] if _DRIVE.match(path) else path


def folder_path(path: str) -> str:
    """Check the path of a folder, and return it with backslashes; a long path gets a prefix.

    Raises:
        InvalidArgument: it is not absolute, or is not the path of a folder.
        StoreError: another machine has the folder.
    """
    drive, rest = ntpath.splitdrive(ntpath.normpath(path))
    if drive.startswith("\\\\") and not drive.startswith((PREFIX, "\\\\.\\")):
        raise StoreError(
            f"{path} is a folder of another machine (UNC), whose locks are not reliable. Choose a folder on a disk "
            f"of this machine, or a store for several machines, such as redis://."
        )
    if len(drive) != 2 or not rest.startswith("\\"):
        raise InvalidArgument(f"file:// needs a folder with a drive, not {path!r}. Write {path_url(EXAMPLE)}.")
    for part in rest.split("\\"):
        if _REFUSED.search(part) or _DEVICE_NAME.match(part) or part != part.rstrip(" ."):
            raise InvalidArgument(f"{path!r} is not a folder: Windows refuses or changes the name {part!r}.")
    whole = drive + rest
    return PREFIX + whole if len(whole) > LONGEST else whole


def folder_meant(path: str) -> str:
    """Return the URL that a path without its first slash probably means."""
    whole = ntpath.normpath(path)
    return path_url(whole if ntpath.isabs(whole) and whole[1:2] == ":" else EXAMPLE)
