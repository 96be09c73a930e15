"""`connect`, and the registry of URL schemes."""

import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import SplitResult, parse_qsl, urlsplit

from interlock.api._sync.locks import Locks
from interlock.client.base_client import BaseClient
from interlock.core.errors import InvalidArgument, StoreError
from interlock.core.options import Options, path_url
from interlock.core.redaction import described, masked, why
from interlock.runtime.loading import loading
from interlock.storekit.store import Store

if TYPE_CHECKING:
    from interlock.api._async.locks import AsyncLocks

L = TypeVar("L", bound="Locks | AsyncLocks")
SCHEMES = {
    "interlock.stores.memory:MemoryStore": ("memory",),
    "interlock.stores.files:FileStore": ("file",),
    "interlock.stores.redis:RedisStore": (
        "redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster", "unix",
        "valkey", "valkeys", "valkey+sentinel", "valkeys+sentinel", "valkey+cluster", "valkeys+cluster",
    ),
    "interlock.stores.postgresql:PostgresStore": ("postgresql", "postgresql+psycopg"),
    "interlock.stores.mysql:MysqlStore": ("mysql", "mysql+pymysql", "mariadb", "mariadb+pymysql"),
    "interlock.stores.advisory:AdvisoryStore": ("postgresql+advisory", "mysql+advisory", "mariadb+advisory"),
    "interlock.stores.etcd:EtcdStore": ("etcd", "etcds"),
    "interlock.stores.bucket:BucketStore": ("s3", "gs", "az"),
    "interlock.stores.dynamodb:DynamoStore": ("dynamodb",),
    "interlock.stores.share:ShareStore": ("share",),
    "interlock.stores.sqlite:SqliteStore": ("sqlite", "sqlite+pysqlite", "sqlite+aiosqlite"),
}  # fmt: skip
BUILT_IN = {scheme: store for store, schemes in SCHEMES.items() for scheme in schemes}
_HOSTS = re.compile(r"[^/?#]*")
CLIENTS = {
    "redis": "interlock.stores.redis:from_client",
    "valkey": "interlock.stores.redis:from_client",
    "obstore": "interlock.stores.bucket:from_client",
    "sqlalchemy": "interlock.storekit.store:from_client",
}
"""The top-level module of a client's class, and the function that makes its store."""


def given_url(url: object) -> object:
    """Return the URL of a folder, or of nothing; return anything else unchanged.

    Raises:
        InvalidArgument: the path is relative.
    """
    if not isinstance(url, os.PathLike):
        return default_url() if url is None else url
    path = os.fsdecode(url)
    if not os.path.isabs(path):
        raise InvalidArgument(f"{url!r} is relative to the working directory. Use its `.absolute()`.")
    return path_url(path)


def default_url() -> str:
    """Return $INTERLOCK_URL, or else the URL of the user's folder, such as /tmp/interlock-UID.

    Raises:
        InvalidArgument: the variable is empty, perhaps because a secret is missing: another store would be wrong.
    """
    url = os.environ.get("INTERLOCK_URL")
    if url is not None:
        if not url.strip():
            raise InvalidArgument("INTERLOCK_URL is empty. Set it to the URL of the store, or unset it.")
        return url
    from interlock.stores.files import runtime_folder

    return path_url(runtime_folder())


def open_store(
    url: object,
    tasks: bool = False,
    password: Callable[[], str] | None = None,
    dial: Callable[[], object] | None = None,
    config: Mapping[str, object] | None = None,
) -> Store:
    """Return the store that `url` names.

    Args:
        url: scheme://…, or a database client of the program; None for `default_url()`.
        tasks: True if asyncio tasks will use it, False for threads.
        password, dial, config: as for `connect`.

    Raises:
        InvalidArgument: not a URL, an unknown scheme or client, or an argument that its store does not accept.
        StoreError: the store is unusable.
    """
    url = given_url(url)
    arguments = (("password", password), ("dial", dial), ("config", config))
    given: Options = {key: value for key, value in arguments if value is not None}
    if not isinstance(url, str):
        if given:
            raise InvalidArgument(f"{next(iter(given))}= needs a URL. {described(url)} has its own settings.")
        return _store_of_client(url, tasks)
    parts, factory = check_url(url)
    if given:
        from inspect import signature

        refused = sorted(set(given) - set(signature(factory.from_url).parameters))
        if refused:
            who = "s3://, gs:// and az://" if refused[0] == "config" else "PostgreSQL, MySQL and MariaDB"
            raise InvalidArgument(f"{parts.scheme}:// does not accept {refused[0]}=. Only {who} do.")
    return cast(Store, factory.from_url(parts, **given))


def check_url(url: str) -> tuple[SplitResult, Any]:
    """Check a URL without connecting; return its parts, and the class of its store.

    Raises:
        InvalidArgument: not a URL, an unknown scheme, or an argument that a URL cannot contain.
        StoreError: the store of the scheme cannot be imported.
    """
    if "://" not in url:
        raise InvalidArgument(f"{masked(url)!r} is not a store URL. {_advice_on(url)}")
    parts = split(url)
    for name, _ in parse_qsl(parts.query, keep_blank_values=True):
        if name in ("namespace", "ttl"):  # on all stores these are arguments of the connection
            raise InvalidArgument(f"A URL cannot contain {name}. Call connect(url, {name}=…).")
    return parts, _factory(parts.scheme)


def split(url: str) -> SplitResult:
    """Return the parts of a URL with one or more hosts.

    Args:
        url: the URL; newer versions of Python refuse an IPv6 address after another host.

    Raises:
        InvalidArgument: not a URL.
    """
    begin, slashes, rest = url.partition("://")
    hosts = _HOSTS.match(rest)[0]  # type: ignore[index]  # which matches the empty text
    try:
        if "," not in hosts or "[" not in hosts:
            return urlsplit(url)
        for host in hosts.rpartition("@")[2].split(","):
            urlsplit(f"//{host}")
        return urlsplit(begin + slashes + rest[len(hosts) :])._replace(netloc=hosts)
    except ValueError as error:
        reason = why(error, url)
    # Raised here, because inside the handler the chained error could show the password.
    raise InvalidArgument(f"{masked(url)!r} is not a store URL: {reason}")


def _store_of_client(client: object, tasks: bool) -> Store:
    for base in type(client).__mro__:
        maker = CLIENTS.get(base.__module__.partition(".")[0])
        if maker is not None:
            return cast(Store, _load(maker)(client, tasks))
    raise InvalidArgument(
        f"{described(client)} is neither a store URL nor a known client. Give a URL like "
        f"'file:///var/lib/app/locks', or a client of {', '.join(sorted(CLIENTS))}."
    )


def _factory(scheme: str) -> object:
    if scheme in BUILT_IN:
        return _load(BUILT_IN[scheme])
    from importlib.metadata import entry_points

    points = {point.name: point for point in entry_points(group="interlock.stores")}
    if scheme not in points:
        from difflib import get_close_matches  # needed only for a wrong URL

        known = sorted({*BUILT_IN, *points})
        close = [OTHER_WORDS.get(scheme, ""), *get_close_matches(scheme, known, 1, 0.7)]
        meant = next((each for each in close if each in known), "")
        advice = f"Did you mean {meant}://? " if meant else ""
        raise InvalidArgument(f"Unknown store scheme {scheme!r}. {advice}Installed: {', '.join(known)}.")
    try:
        return points[scheme].load()
    except ImportError as error:
        raise StoreError(
            f"The store of {scheme}:// cannot be imported: {error}. Install its dependencies."
        ) from error


def _load(where: str) -> Any:
    module, _, name = where.partition(":")
    with loading:
        from importlib import import_module

        return getattr(import_module(module), name)


def connect(
    url: object = None,
    *,
    namespace: str = "",
    ttl: float | None = None,
    password: Callable[[], str] | None = None,
    dial: Callable[[], object] | None = None,
    config: Mapping[str, object] | None = None,
    instance: str | None = None,
    takeover: bool = False,
) -> Locks:
    """Return the locks of a store, for threads.

    Args:
        url: file:///folder, memory://, redis://host, or a scheme of an installed store; a folder as an absolute
            `pathlib.Path`; or a client of the program, such as redis.Redis(); None for $INTERLOCK_URL, or else
            files in /tmp/interlock-UID, a per-user directory that depends on no other setting.
        namespace: separates applications that share a store.
        ttl: default lease of its locks in seconds; None for the store's own: 30, on share:// 60.
        password: returns the password for each new connection, such as a cloud token (PostgreSQL, MySQL, MariaDB).
        dial: returns a new connection of psycopg or PyMySQL, for settings that a URL cannot contain.
        config: settings of the client of a bucket by name, such as those for encryption (s3://, gs://, az://).
        instance: a stable name of this process in its deployment, such as its pod in a StatefulSet; listings show it.
            1 to 64 printable ASCII characters without spaces.
        takeover: True to remove, at the first acquire, the claims that earlier processes of this `instance` left.

    Raises:
        InvalidArgument: an argument is out of range, or the scheme is unknown.
        StoreError: the store is unusable; the message gives the next step.
        Unsupported: the store does not support `takeover`.
    """
    return _connected(Locks, connect, url, namespace, ttl, password, dial, config, instance, takeover)


def aconnect(
    url: object = None,
    *,
    namespace: str = "",
    ttl: float | None = None,
    password: Callable[[], str] | None = None,
    dial: Callable[[], object] | None = None,
    config: Mapping[str, object] | None = None,
    instance: str | None = None,
    takeover: bool = False,
) -> "AsyncLocks":
    """Return the locks of a store, for asyncio tasks; a plain function, like `connect`.

    Args:
        url, namespace, ttl, password, dial, config, instance, takeover: as for `connect`.

    Raises:
        InvalidArgument: an argument is out of range, or the scheme is unknown.
        StoreError: the store is unusable; the message gives the next step.
        Unsupported: the store does not support `takeover`.
    """
    # Loaded late, so that programs without an event loop do not load asyncio.
    from interlock.api._async.locks import AsyncLocks

    return _connected(AsyncLocks, aconnect, url, namespace, ttl, password, dial, config, instance, takeover)


def _connected(
    kind: type[L],
    connects: Callable[..., L],
    url: object,
    namespace: str,
    ttl: float | None,
    password: Callable[[], str] | None,
    dial: Callable[[], object] | None,
    config: Mapping[str, object] | None,
    instance: str | None,
    takeover: bool,
) -> L:
    url = given_url(url)
    store = open_store(url, connects is aconnect, password, dial, config)
    locks = kind(store, namespace=namespace, ttl=ttl, instance=instance, takeover=takeover)
    by_url = all(each is None for each in (password, dial, config))  # all that another process needs
    locks._client.source = (_again, connects, url) if isinstance(url, str) and by_url else None
    return locks


_arrived: "dict[tuple[object, str, str, float, str | None], Locks | AsyncLocks]" = {}


def _again(
    make: "Callable[..., Locks | AsyncLocks]", url: str, namespace: str, ttl: float, instance: str | None
) -> BaseClient:
    """Connect like another process did; all unpickled objects share the connection.

    It has the instance, but takes nothing over: the process that sent it may live on another host.  After a
    restart, that process does not take over the claims of this process.

    Raises:
        InvalidArgument, StoreError: as `connect`.
    """
    place = make, url, namespace, ttl, instance
    with loading:
        found = _arrived.get(place)
        if found is None or found._client.closed:
            found = make(url, namespace=namespace, ttl=ttl, instance=instance)
            found._client.came_in_a_pickle()
            _arrived[place] = found
        return found._client


OTHER_WORDS = {
    "postgres": "postgresql", "postgresql+psycopg2": "postgresql", "psql": "postgresql", "pg": "postgresql",
    "redis+ssl": "rediss", "redis+tls": "rediss", "redis+socket": "unix", "redis+unix": "unix", "tcp": "redis",
    "mem": "memory", "locmem": "memory", "folder": "file", "dir": "file", "path": "file",
}  # fmt: skip
"""Other common names of the schemes."""


def _advice_on(text: str) -> str:
    """Return advice on a text that is not a URL."""
    if not text.startswith(("/", "./", "../", "~")) and text[1:3] not in (":/", ":\\"):
        return "Give a URL such as 'file:///var/lib/app/locks', 'redis://localhost' or 'memory://'."
    from interlock.stores.files import folder_meant  # loaded late, because it imports more than a wrong URL needs

    return f"Did you mean {folder_meant(text)!r}?"
