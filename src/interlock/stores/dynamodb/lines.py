"""The lines in a table of DynamoDB: items that are written only if unchanged since the read.

Each write gives its item a random nonce, on which the next write is conditional.

**Time.** Each reply reports the time of DynamoDB to the second, a sample for `storekit.server_clock`.

**Expiry.** A line without claims has an attribute `expires`, after which DynamoDB may delete the item: `KEPT` seconds
after the last write, after the end of its record, and after the time of its highest fence, whichever is latest.  The
fences of a new line begin with the time, so they are higher.  A line with claims has no such attribute.
"""

import secrets
from collections.abc import Mapping, Sequence
from hashlib import sha256
from urllib.parse import quote, unquote

from interlock.core.claims import MICROS, SEPARATOR, Check
from interlock.core.errors import LockError, StoreError
from interlock.core.failures import Refused
from interlock.core.line import QueuedClaim, decode
from interlock.runtime import clock
from interlock.storekit.compare_and_swap import SwapStore, examined
from interlock.storekit.race import Racer
from interlock.stores.dynamodb.table import EXPIRES, KEY, NONCE, DynamoTable, Item

LINE, VALUE, NAME = "line", "kept", "name"  # names of attributes
LONGEST_KEY = 1024  # characters; longer keys are hashed
KEPT = 86_400  # seconds; more than any error of a clock, or delay of a write
INVALID = "ValidationException"
TOO_LARGE = "maximum allowed size"


def _key(name: str) -> str:
    """Return the key of an item; a hash has no slash, so it is not the key of another name."""
    return name if len(name) <= LONGEST_KEY else f"~{sha256(name.encode()).hexdigest()}"


def _name(key: str) -> str:
    """Return a key of interlock as readable text: namespace/name."""
    namespace, _, name = key.partition(SEPARATOR)
    return f"{quote(namespace, safe='')}/{quote(name, safe='')}"


class DynamoRacer(Racer[str]):
    """A client that races for an item."""

    def __init__(self, table: DynamoTable, key: str) -> None:
        self._table = table
        self._key = key

    def read(self) -> tuple[str | None, bytes]:
        """See `Racer.read`."""
        item = self._table.read(self._key)
        return (item[NONCE]["S"], item[LINE]["S"].encode()) if item else (None, b"")

    def write(self, version: str | None, body: bytes) -> bool:
        """See `Racer.write`."""
        item = {LINE: {"S": body.decode()}, EXPIRES: {"N": str(int(clock.time_of_day()) + KEPT)}}
        return self._table.write(self._key, version, secrets.token_hex(8), item)

    def delete(self) -> None:
        """See `Racer.delete`."""
        self._table.ask("delete_item", Key={KEY: {"S": self._key}})


class DynamoLines(SwapStore[str]):
    """The lines of one table: `storekit.compare_and_swap.SwapStore`.

    Args:
        table: the table.
    """

    longest_look = 2.0  # seconds between two polls of a waiter that has waited long: each costs money

    def __init__(self, table: DynamoTable) -> None:
        self._table = table

    @property
    def slack(self) -> int:
        """Microseconds that DynamoDB's clock may differ from the estimate."""
        return int(self._table.fresh_clock().error * MICROS)

    @property
    def ahead(self) -> int:
        """Microseconds by which DynamoDB's clock is ahead of this machine's."""
        return int(self._table.fresh_clock().ahead * MICROS)

    def _now(self) -> int:
        return int(clock.awake_or_not() * MICROS) + self.ahead

    def load(self, key: str) -> tuple[str | None, str, int]:
        """See `SwapStore.load`."""
        item = self._table.read(_key(_name(key)))
        return (item[NONCE]["S"], item[LINE]["S"], self._now()) if item else (None, "", self._now())

    def load_kept(self, key: str) -> tuple[str, str, int]:
        """See `SwapStore.load_kept`."""
        item = self._table.read(_key(_name(key)))
        return item[LINE]["S"] if item else "", item[VALUE]["S"] if VALUE in item else "", self._now()

    def swap(self, key: str, version: str | None, text: str, now: int, value: str | None = None) -> str | None:
        """See `SwapStore.swap`; DynamoDB cannot compare `now`, so the slack covers the error."""
        name, nonce, line = _name(key), secrets.token_hex(8), decode(text)
        item: Item = {LINE: {"S": text}, NAME: {"S": name}}
        if value is not None:
            item = {**item, VALUE: {"S": value}}
        if not line.places:
            dead = max(now, line.record_expires, line.max_fence) // MICROS + 1
            item = {**item, EXPIRES: {"N": str(dead + KEPT)}}
        try:
            return nonce if self._table.write(_key(name), version, nonce, item) else None
        except Refused as error:
            if error.code != INVALID or TOO_LARGE not in str(error):
                raise
            raise Refused(
                f"The {len(line.places)} claims of {name!r} need more than the 400 KB of an item of DynamoDB. "
                f"Let fewer callers wait at the same time, or use another store."
            ) from error

    def swap_many(self, swaps: Sequence[tuple[str, str, str]], now: int) -> Sequence[str]:
        """Return nothing: a transaction of several items costs twice as much as separate writes."""
        return ()

    def permit(self, place: QueuedClaim) -> None:
        """Do nothing: DynamoDB permits every grant."""

    def keys(self, prefix: str) -> list[str]:
        """List the keys that begin with `prefix` and have claims or a record; this reads the whole table."""
        alive = {":dead": {"N": str(self._now() // MICROS + KEPT)}}
        found: list[str] = []
        more: Mapping[str, object] = {}
        while True:
            reply = self._table.ask(
                "scan", ConsistentRead=True, ProjectionExpression="#n", ExpressionAttributeValues=alive,
                FilterExpression="attribute_exists(#n) AND (attribute_not_exists(#e) OR #e > :dead)",
                ExpressionAttributeNames={"#n": NAME, "#e": EXPIRES}, **more,
            )  # fmt: skip
            found += [SEPARATOR.join(map(unquote, item[NAME]["S"].split("/"))) for item in reply["Items"]]
            if "LastEvaluatedKey" not in reply:
                return sorted(key for key in found if key.startswith(prefix))
            more = {"ExclusiveStartKey": reply["LastEvaluatedKey"]}

    def doctor(self) -> list[Check]:
        """Check whether stale writes are refused, the precision of the clock, and the deletion of unused names."""
        racer = DynamoRacer(self._table, f"~doctor-{secrets.token_hex(8)}")
        try:
            began = clock.now()
            racer.write(None, b"1")
            took = clock.now() - began
            first, _ = racer.read()
            racer.write(first, b"2")
            wrong = [version for version in (None, first) if racer.write(version, b"3")]
            racer.delete()
            found = examined("DynamoDB's", took, bool(wrong), self.slack)
        except LockError as error:
            return [Check("server", "fail", str(error))]
        return [*found, self._expiry()]

    def _expiry(self) -> Check:
        try:
            about = self._table.ask("describe_time_to_live")["TimeToLiveDescription"]
        except StoreError as error:
            return Check("unused names", "warn", str(error))
        if about["TimeToLiveStatus"] in ("ENABLED", "ENABLING") and about.get("AttributeName") == EXPIRES:
            return Check(
                "unused names",
                "ok",
                "DynamoDB deletes the items of unused names, usually some days after the last use.",
            )
        return Check(
            "unused names",
            "warn",
            f"The items of unused names are never deleted. Enable time to live for the attribute {EXPIRES!r}.",
        )

    def close(self) -> None:
        """Close all connections."""
        self._table.close()
