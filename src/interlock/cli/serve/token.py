"""The token that lets somebody evict: from a file or the environment, where other users do not see it."""

import os
from pathlib import Path

from interlock.cli.exits import say

TOKEN = "INTERLOCK_SERVE_TOKEN"
SHORTEST = 16  # characters; guesses are not counted
LONGEST = 4096


def token_of(file: Path | None) -> str | None:
    """Return the token; None if there is none.

    Args:
        file: holds it; None for the environment.

    Raises:
        ValueError: it can't be read or is no token; the message says what to do.
    """
    if file is None:
        token, where = os.environ.get(TOKEN), f"${TOKEN}"
        if token is None:
            return None
    else:
        token, where = _read(file), f"{str(file)!r}"
    if not (token.isascii() and token.isprintable() and " " not in token and SHORTEST <= len(token) <= LONGEST):
        raise ValueError(
            f"the token in {where} must have {SHORTEST} or more printable ASCII characters without spaces; make one "
            f"by: python3 -c 'import secrets; print(secrets.token_urlsafe())'"
        )
    return token


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            if os.fstat(opened.fileno()).st_mode & 0o007:
                say(f"every user of this machine can read the token in {str(file)!r}: chmod 600")
            return opened.read(LONGEST + 2).decode("ascii", "replace").strip()
    except OSError as error:
        raise ValueError(f"the token can't be read from {str(file)!r}: {error.strerror or error}") from error
