"""s3://, gs://, az:// or a store of obstore: locks in a bucket, by conditional writes.

Each name has one object, which holds its line. It is read and swapped, and never deleted, so that fences only grow.
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote

from interlock.core.claims import Check
from interlock.core.errors import InvalidArgument, StoreError, install
from interlock.core.options import Options, read_options, seconds_in, text_in
from interlock.core.queue import ALL
from interlock.core.redaction import place_of, reads_url
from interlock.storekit._sync.step_queue import StepStore
from interlock.storekit.blocking import BlockingStore
from interlock.storekit.store import require_module

IO_TIMEOUT = 10.0  # seconds to wait for a reply
DEFAULT_PREFIX = "interlock"
GCS_PACE = 1.0  # seconds; https://cloud.google.com/storage/quotas: one write a second to an object
_KNOWN = {"endpoint": text_in, "region": text_in, "timeout": seconds_in}
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
    def from_url(cls, url: SplitResult) -> "BucketStore":
        """Connect to s3://bucket/prefix, gs://bucket/prefix or az://container/prefix.

        Credentials come from the environment, as for the cloud's own tools, or from the part of the URL before the @:
        access key and secret for S3, account and key for Azure.
        """
        require_module("obstore", f"Locks in a bucket need obstore. Run: {install('bucket')}")
        return _store_of(url)

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


@reads_url
def _store_of(url: SplitResult) -> BucketStore:
    import obstore.store

    where = place_of(url)
    given = read_options(parse_qsl(url.query, keep_blank_values=True), _KNOWN, f"{url.scheme}://")
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
        how |= {"virtual_hosted_style_request": False, "region": how.get("region", "us-east-1")}
    timeout = f"{given.get('timeout', IO_TIMEOUT):g}s"
    how["client_options"] = {"timeout": timeout, "connect_timeout": timeout}
    if given.get("endpoint", "").startswith("http://"):
        how["client_options"]["allow_http"] = True
    # Lost replies are handled here: a retry by the client would fail on its own first write.
    how["retry_config"] = {"max_retries": 0}
    kind = getattr(obstore.store, _USES[url.scheme])
    prefix = unquote(url.path).strip("/") or DEFAULT_PREFIX
    pace = GCS_PACE if url.scheme == "gs" else 0.0
    return BucketStore(lambda: kind(bucket, **how), prefix, where, given.get("endpoint", ""), pace)


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
