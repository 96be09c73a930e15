"""dynamodb://table: locks in a table of Amazon DynamoDB, by conditional writes."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, unquote

from interlock.core.claims import Check, shown_value
from interlock.core.errors import InvalidArgument, install
from interlock.core.options import flag_in, read_options, seconds_in, text_in
from interlock.core.queue import ALL
from interlock.core.redaction import place_of, reads_url
from interlock.storekit._sync.step_queue import StepStore
from interlock.storekit.blocking import BlockingStore
from interlock.storekit.store import require_module

if TYPE_CHECKING:
    from interlock.stores.dynamodb.table import DynamoTable

IO_TIMEOUT = 10.0  # seconds to wait for a reply
_TABLE = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_KNOWN = {"region": text_in, "endpoint": text_in, "profile": text_in, "timeout": seconds_in, "create": flag_in}


class DynamoStore(BlockingStore):
    """A store in a table of DynamoDB.

    Args:
        opened: returns the table with a client of its own; called once for each queue.
    """

    features = ALL

    def __init__(self, opened: "Callable[[], DynamoTable]") -> None:
        # Imported now, because a child forked during another thread's import would wait for that import forever.
        from interlock.storekit.compare_and_swap import SwapSteps
        from interlock.stores.dynamodb.lines import DynamoLines

        self._opened = opened
        self._made: Callable[[], StepStore] = lambda: SwapSteps(DynamoLines(opened()))

    @classmethod
    def from_url(cls, url: SplitResult) -> "DynamoStore":
        """Connect to dynamodb://table?region=eu-central-1.

        Credentials come from the environment, as for the tools of AWS, or from the part of the URL before the @:
        access key and secret.
        """
        require_module("botocore", f"Locks in DynamoDB need botocore. Run: {install('dynamodb')}")
        return _store_of(url)

    def steps(self) -> StepStore:
        """See `BlockingStore.steps`."""
        return self._made()

    def race(self, clients: int, rounds: int) -> list[Check]:
        """Test whether only one of many concurrent conditional writes succeeds.

        Args:
            clients: the number of clients that write.
            rounds: the number of rounds.

        Raises:
            StoreError: the table is unusable.
        """
        from interlock.storekit.race import race
        from interlock.stores.dynamodb.lines import DynamoRacer

        racers = [DynamoRacer(self._opened(), "~race") for _ in range(clients)]
        for each in racers:
            each.read()  # connects
        return race(racers, rounds)


@reads_url
def _store_of(url: SplitResult) -> DynamoStore:
    from interlock.stores.dynamodb.table import DynamoTable

    where = place_of(url)
    given = read_options(parse_qsl(url.query, keep_blank_values=True), _KNOWN, f"{url.scheme}://")
    login, at, table = url.netloc.rpartition("@")
    user, _, password = (unquote(part) for part in login.partition(":"))
    if not _TABLE.fullmatch(table) or url.path.strip("/") or bool(at) != bool(user and password):
        raise InvalidArgument(
            f"{where}: write dynamodb://table or dynamodb://key:secret@table, with the region or the server in an "
            f"option: ?region=eu-central-1 or ?endpoint=http://127.0.0.1:8000. A table has 3 to 255 letters, digits, "
            f"dots, hyphens and underscores, unlike {shown_value(table)}."
        )
    how = {
        "region_name": given.get("region"), "endpoint_url": given.get("endpoint"), "aws_access_key_id": user or None,
        "aws_secret_access_key": password or None,
    }  # fmt: skip
    timeout, create = given.get("timeout", IO_TIMEOUT), given.get("create", True)
    return DynamoStore(lambda: DynamoTable(table, where, how, given.get("profile"), timeout, create))
