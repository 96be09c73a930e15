"""What was probably meant by a URL that names no store; imported when one does not."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

from interlock.core.redaction import masked

OTHER_WORDS = {
    "postgres": "postgresql", "postgresql+psycopg2": "postgresql", "psql": "postgresql", "pg": "postgresql",
    "redis+ssl": "rediss", "redis+tls": "rediss", "redis+socket": "unix", "redis+unix": "unix", "tcp": "redis",
    "mem": "memory", "locmem": "memory", "folder": "file", "dir": "file", "path": "file",
}  # fmt: skip
"""What others call the schemes."""
PORTS = {"6379": "redis", "26379": "redis+sentinel", "5432": "postgresql", "3306": "mariadb", "2379": "etcd"}
EXAMPLES = "give one like 'file:///var/lib/app/locks' or 'memory://'"
_HOST = re.compile(r"(?:.*@)?[\w.-]+:(\d+)(?:/.*)?")
_WINDOWS = re.compile(r"[A-Za-z]:[\\/]")


def scheme_meant(scheme: str, known: Iterable[str]) -> str:
    """Return the scheme that was meant; "" if none is like it."""
    schemes = sorted(known)
    other = OTHER_WORDS.get(scheme, scheme)
    if other in schemes:
        return other
    longer = [each for each in schemes if each.startswith(f"{scheme}+")]
    return next(iter(longer or get_close_matches(scheme, schemes, 1, 0.7)), "")


def advice_on(url: str, known: Iterable[str]) -> str:
    """Say what to write in the place of what is no URL; a password is not shown."""
    meant = _meant(url, set(known))
    return f"did you mean {masked(meant)!r}?" if meant else EXAMPLES


def _meant(url: str, known: set[str]) -> str:
    from interlock.stores.files.store import folder_meant  # which imports more than a wrong URL needs

    if url.startswith(("/", "./", "../", "~")):
        return folder_meant(url)
    if _WINDOWS.match(url):
        return ""
    scheme, colon, rest = url.partition(":")
    host = _HOST.fullmatch(url)
    if host is not None and not (colon and scheme_meant(scheme, known) and not rest[:1].isdigit()):
        found = scheme_meant(PORTS.get(host[1], ""), known)
        return f"{found}://{url}" if found else ""
    found = scheme_meant(scheme.lower(), known)
    if not found:
        return "" if colon or "@" in url else folder_meant(url)
    if found == "file" and rest.strip("/") and not rest.startswith("/"):
        return folder_meant(rest)
    slashes = ":///" if found in ("file", "unix") else "://"
    return found + slashes + rest.lstrip("/") if rest.strip("/") or found == "memory" else ""
