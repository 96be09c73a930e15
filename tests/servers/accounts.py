"""The account for database servers, which refuse to run as root."""

import os
import pwd
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.servers.home import Missing


def drop_root(*names: str) -> tuple[list[str], tuple[int, int] | None]:
    """Return the words before a command that make it run as another account than root, and the account's ids.

    Args:
        names: accounts, the preferred one first; "nobody" is tried last.

    Returns:
        The words before the command, and (uid, gid); nothing and None unless this process runs as root.

    Raises:
        Missing: this process runs as root, and there is none of the accounts, or no `setpriv`.
    """
    if os.geteuid() != 0:
        return [], None
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise Missing("a database server does not run as root, and there is no `setpriv` to run it as somebody else")
    for name in (*names, "nobody"):
        try:
            account = pwd.getpwnam(name)
        except KeyError:
            continue
        ids = (account.pw_uid, account.pw_gid)
        return [setpriv, f"--reuid={ids[0]}", f"--regid={ids[1]}", "--clear-groups"], ids
    raise Missing(f"a database server does not run as root, and there is no account {' or '.join(names)}")


def give(folders: Sequence[Path], ids: tuple[int, int] | None) -> None:
    """Change the owner of folders; do nothing if `ids` is None."""
    if ids is not None:
        for folder in folders:
            os.chown(folder, *ids)
