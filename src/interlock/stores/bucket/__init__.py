"""s3://, gs://, az:// or a store of obstore: locks in a bucket, by conditional writes.

Each name has one object, which holds its line. It is read and swapped, and never deleted, so that fences only grow.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import SplitResult, unquote

from interlock.core.claims import Check
from interlock.core.errors import InvalidArgument, StoreError, install
from interlock.core.options import Options, read_options, seconds_in, text_in
from interlock.core.queue import ALL
from interlock.core.redaction import described, is_secret, place_of, reads_url
from interlock.drivers.urls import options_in
from interlock.storekit._sync.step_queue import StepStore
from interlock.storekit.blocking import BlockingStore
from interlock.storekit.store import require_module

IO_TIMEOUT = 10.0  # seconds to wait for a reply
DEFAULT_PREFIX = "interlock"
GCS_PACE = 1.0  # seconds; https://cloud.google.com/storage/quotas: one write a second to an object
_KNOWN = {"endpoint": text_in, "region": text_in, "timeout": seconds_in}
STYLE = "virtual_hosted_style_request"
_USES = {"s3": "S3Store", "gs": "GCSStore", "az": "AzureStore"}


class BucketStore(BlockingStore):
    """A store in a bucket.

    Args:
        made: creates the store of obstore; called once for each queue.
        prefix: the prefix of the names of all objects.
        where: the bucket for messages, without a password.
        server: more text that identifies the bucket; all clients of one bucket share an estimate of its clock.
        pace: minimum seconds between two writes of one object.
    """

    features = ALL

    def __init__(self, made: Callable[[], Any], prefix: str, where: str, server: str, pace: float = 0.0) -> None:
        from interlock.storekit.compare_and_swap import SwapSteps
        from interlock.stores.bucket.lines import CLOCK, BucketLines, clock_of, see_that_it_runs_here

        def steps() -> StepStore:
            see_that_it_runs_here()
            clock = clock_of(f"{where} {server}", f"{prefix}/{CLOCK}/")
            return SwapSteps(BucketLines(made(), prefix, where, clock, pace))

        self._made, self._prefix = made, prefix
        self._steps: Callable[[], StepStore] = steps

    @classmethod
    def from_url(cls, url: SplitResult, config: Mapping[str, object] | None = None) -> "BucketStore":
        """Connect to s3://bucket/prefix, gs://bucket/prefix or az://container/prefix.

        Credentials come from the environment, as for the cloud's own tools, or from the part of the URL before the @:
        access key and secret for S3, account and key for Azure.

        Args:
            url: the URL; options that are not of this store are settings of the client of obstore.
            config: further settings of the client; its own entry "client_options" has those of HTTP.
        """
        require_module("obstore", f"Locks in a bucket need obstore. Run: {install('bucket')}")
        if config is not None and not (isinstance(config, Mapping) and all(isinstance(name, str) for name in config)):
            raise InvalidArgument("config must be a dict of settings by their names, which are strings.")
        return reads_url(partial(_store_of, config=dict(config or {})))(url)

    def steps(self) -> StepStore:
        """See `BlockingStore.steps`."""
        return self._steps()

    def race(self, clients: int, rounds: int) -> list[Check]:
        """Test whether only one of many concurrent conditional writes succeeds.

        Args:
            clients: the number of clients that write.
            rounds: the number of rounds.

        Raises:
            StoreError: the bucket is unusable.
        """
        from obstore.exceptions import BaseError

        from interlock.stores.bucket.conditional_writes import race

        try:
            return race(self._made, f"{self._prefix}/.clock/race", clients, rounds)
        except (BaseError, FileNotFoundError) as error:
            raise StoreError(f"The race failed: {str(error).partition(chr(10))[0]}") from error


def _store_of(url: SplitResult, config: Options) -> BucketStore:
    import obstore.store

    where = place_of(url)
    given, settings, client_options = _options_of(url, where, config)
    login, _, bucket = url.netloc.rpartition("@")
    user, _, password = (unquote(part) for part in login.partition(":"))
    if not bucket or (login and url.scheme == "gs"):
        raise InvalidArgument(
            f"{where}: write {url.scheme}://bucket/prefix, with the credentials in the environment."
        )
    how: Options = {name: given[name] for name in ("endpoint", "region") if name in given}
    if login:
        names = {"s3": ("access_key_id", "secret_access_key"), "az": ("account_name", "account_key")}[url.scheme]
        how |= dict(zip(names, (user, password), strict=True))
    if url.scheme == "s3" and "endpoint" in how:
        how["region"] = how.get("region", "us-east-1")
        if not any(STYLE in name.lower() for name in settings):
            how[STYLE] = False
    timeout = f"{given.get('timeout', IO_TIMEOUT):g}s"
    how["client_options"] = {"timeout": timeout, "connect_timeout": timeout}
    if given.get("endpoint", "").startswith("http://"):
        how["client_options"]["allow_http"] = True
    how["client_options"] |= client_options
    # Lost replies are handled here: a retry by the client would fail on its own first write.
    how["retry_config"] = {"max_retries": 0}
    kind = getattr(obstore.store, _USES[url.scheme])
    prefix = unquote(url.path).strip("/") or DEFAULT_PREFIX
    pace = GCS_PACE if url.scheme == "gs" else 0.0
    made = partial(_client, kind, bucket, settings, how, where)
    # Settings can name another server, too.
    server = f"{given.get('endpoint', '')} {hash(repr(sorted(settings.items()))) if settings else ''}"
    return BucketStore(made, prefix, where, server, pace)


def _options_of(url: SplitResult, where: str, config: Options) -> tuple[Options, Options, Mapping[str, object]]:
    """Return the options of this store, and the settings of the client and of its HTTP client.

    Raises:
        InvalidArgument: one of them is given twice, or turns off conditional writes.
    """
    options, client_options = options_in(url), config.get("client_options", {})
    others: Options = {name: text_in for name, _ in options if name not in _KNOWN}
    given = read_options(options, {**_KNOWN, **others}, f"{url.scheme}://")
    settings = {name: value for name, value in config.items() if name != "client_options"}
    if not isinstance(client_options, Mapping):
        raise InvalidArgument(f'config["client_options"] must be a dict, not {described(client_options)}.')
    twice = sorted(set(settings) & {*_KNOWN, *others})
    if twice:
        raise InvalidArgument(f"{where}: {twice[0]} is an option of the URL. Remove it from config=.")
    settings |= {name: given[name] for name in others}
    for name, value in settings.items():
        if name.lower().endswith("conditional_put") and value != "etag":
            raise InvalidArgument(f"{where}: locks need conditional writes. Remove {name}.")
    return given, settings, client_options


def _client(kind: Callable[..., object], bucket: str, settings: Options, how: Options, where: str) -> object:
    """Return a client of obstore.

    Raises:
        InvalidArgument: obstore refuses a setting.
    """
    from obstore.exceptions import BaseError

    try:
        return kind(bucket, config=settings, **how)
    except (BaseError, ValueError, TypeError) as error:
        reason = str(error).partition("\n")[0]
    # Raised here, because the chained error could show a secret.
    for name, value in settings.items():
        if is_secret(name) and isinstance(value, str) and value:
            reason = reason.replace(value, "***")
    raise InvalidArgument(
        f"{where}: {reason} Options: {', '.join(sorted(_KNOWN))}, and the settings of obstore's {kind.__name__}."
    )


def from_client(client: object, tasks: bool) -> BucketStore:
    """Return the store in the bucket of an obstore client of the program.

    Args:
        client: an `S3Store`, `GCSStore`, `AzureStore` or, for tests, a `MemoryStore`.
        tasks: ignored: an obstore client works for threads and tasks.

    Raises:
        InvalidArgument: the client has no conditional writes.
        StoreError: this is a forked child of a process that has used a bucket.
    """
    kind = type(client).__name__
    if kind not in (*_USES.values(), "MemoryStore"):
        raise InvalidArgument(
            f"A {kind} has no conditional writes. Use an S3Store, GCSStore or AzureStore, or file:// for a folder."
        )
    from interlock.stores.bucket.lines import see_that_it_runs_here

    see_that_it_runs_here()  # the program may have used the client before the fork
    pace = GCS_PACE if kind == "GCSStore" else 0.0
    return BucketStore(lambda: client, DEFAULT_PREFIX, f"the bucket of a {kind}", str(id(client)), pace)
