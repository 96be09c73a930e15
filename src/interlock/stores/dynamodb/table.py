"""Requests to a table of DynamoDB, with their retries and errors.

botocore must not repeat a request: if a reply to a write was lost, the repeated write fails on its own first attempt.
interlock repeats only requests that changed nothing: throttled requests and, once, a read whose connection ended.
"""

import encodings.idna  # noqa: F401  # the first connection would import it
import threading
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from random import random
from time import sleep
from typing import Any, TypeAlias

from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import (  # type: ignore[import-untyped]
    BotoCoreError,
    ChecksumError,
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    NoRegionError,
    ProxyConnectionError,
    ReadTimeoutError,
    SSLError,
)
from botocore.parsers import ResponseParserError  # type: ignore[import-untyped]
from botocore.session import Session  # type: ignore[import-untyped]

from interlock.core.errors import InvalidArgument, StoreError, UnknownOutcome
from interlock.core.failures import ConnectionEnded, Denied, Refused, TransientRefusal, Unreachable, ended, no_answer
from interlock.runtime import _threads as rt
from interlock.runtime import clock, log
from interlock.runtime.process import checked_pid
from interlock.storekit.blocking import WITHIN_A_STEP
from interlock.storekit.server_clock import STALE, ServerClock

KEY, NONCE, EXPIRES = "k", "nonce", "expires"  # names of attributes
LOCAL_REGION = "us-east-1"  # of a server that is only compatible, which needs none
CONNECTIONS = 50  # connections that a client keeps
MARGIN = 0.25  # seconds that the clocks of DynamoDB's machines may differ, and a reply may report an old time
PATIENCE = 3.0  # seconds for which a throttled request is repeated; the renewals of other names wait for it
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0  # seconds before a throttled request is repeated
CREATION_LIMIT = 60.0  # seconds to wait for a new table
CREATION_PAUSE = 0.3  # seconds between two looks whether the table exists
NO_TABLE, CHANGED, TAKEN = (
    "ResourceNotFoundException", "ConditionalCheckFailedException", "ResourceInUseException",
)  # fmt: skip
THROTTLED = frozenset({
    "ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded", "LimitExceededException",
    "TransactionConflictException",
})  # fmt: skip
FORBIDDEN = frozenset({
    "AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException", "ExpiredTokenException",
    "IncompleteSignatureException", "MissingAuthenticationTokenException", "SubscriptionRequiredException",
})  # fmt: skip
SKEWED = ("Signature expired", "Signature not yet current")
LOST = (ChecksumError, HTTPClientError, IncompleteReadError, ResponseParserError, SSLError)
"""Errors after which DynamoDB may have performed the request."""
TO_CREATE = (
    "Create it (aws dynamodb create-table --table-name NAME --billing-mode PAY_PER_REQUEST --attribute-definitions "
    f"AttributeName={KEY},AttributeType=S --key-schema AttributeName={KEY},KeyType=HASH), or remove ?create=false."
)
CREDENTIALS = "Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run on a machine with a role."

Item: TypeAlias = Mapping[str, Mapping[str, str]]
"""An item: the type and text of each attribute."""
Reply: TypeAlias = Mapping[str, Any]
_sessions: dict[tuple[int, str | None], tuple[threading.RLock, Any]] = {}
"""The sessions of botocore, by process and profile: a session reads megabytes of JSON."""
_clocks: dict[str, ServerClock] = {}
"""The estimate of the clock of each server or region, which all clients of a process improve."""


class Changed(Refused):
    """The item is not as the condition of the write says.

    Attributes:
        item: the item as it is; empty if it does not exist, or the server does not report it.
    """

    item: Item = {}


class DynamoTable:
    """A table, and the client by which this process reaches it.

    Args:
        name: the name of the table.
        where: the table, for messages.
        how: arguments of the client.
        profile: the profile of the user's settings; None for the usual one.
        timeout: seconds to wait for a reply.
        create: True if a missing table is created.

    Attributes:
        clock: the estimate of DynamoDB's clock.

    Raises:
        InvalidArgument: the settings are incomplete or not valid.
    """

    def __init__(
        self, name: str, where: str, how: Mapping[str, str | None], profile: str | None, timeout: float, create: bool
    ) -> None:
        self.name = name
        self.where = where
        self._timeout = timeout
        self._create = create
        self._checked = False
        self._inside: set[object] = set()  # callers within a request
        config = Config(
            connect_timeout=timeout, read_timeout=timeout, max_pool_connections=CONNECTIONS,
            retries={"total_max_attempts": 1, "mode": "standard"},
        )  # fmt: skip
        try:
            place = checked_pid(), profile
            if place not in _sessions:
                _sessions.setdefault(place, (threading.RLock(), Session(profile=profile)))
            mutex, session = _sessions[place]
            region = (
                how["region_name"] or session.get_config_variable("region") or (how["endpoint_url"] and LOCAL_REGION)
            )
            with mutex:  # a session is not safe for threads
                self._client = session.create_client("dynamodb", config=config, **{**how, "region_name": region})
            self.clock = _clocks.setdefault(self._client.meta.endpoint_url, ServerClock(MARGIN))
        except NoRegionError as error:
            raise InvalidArgument(f"{where} has no region. Write ?region=, or set AWS_DEFAULT_REGION.") from error
        except (BotoCoreError, ValueError) as error:
            raise InvalidArgument(
                f"{where}: {error}. Check the options of the URL and the settings of AWS."
            ) from error

    def fresh_clock(self) -> ServerClock:
        """Return the estimate of DynamoDB's clock, after a request if it is outdated."""
        if self.clock.age > STALE:
            self.read("~clock", False)
            if self.clock.age > STALE:
                raise StoreError(
                    f"{self.where} sends replies without a Date header, so leases cannot be timed. Check the "
                    "proxy or endpoint."
                )
        return self.clock

    def read(self, key: str, consistent: bool = True) -> Item:
        """Return an item, which is empty if it does not exist."""
        item: Item = self.ask("get_item", Key={KEY: {"S": key}}, ConsistentRead=consistent).get("Item", {})
        if item and NONCE not in item:
            raise StoreError(f"{self.where} has an item {key!r} that interlock did not write. Use another table.")
        return item

    def write(self, key: str, known: str | None, new: str, item: Item) -> bool:
        """Write attributes of an item if its nonce is unchanged.

        Args:
            key: the key of the item.
            known: its present nonce; None if it does not exist.
            new: its new nonce.
            item: the attributes; without `EXPIRES`, this attribute is removed.

        Returns:
            True if the item was written.
        """
        item = {**item, NONCE: {"S": new}}
        values = {f":{name}": value for name, value in item.items()}
        condition = f"attribute_not_exists(#{NONCE})"
        if known is not None:
            condition, values[":known"] = f"#{NONCE} = :known", {"S": known}
        try:
            self.ask(
                "update_item",
                Key={KEY: {"S": key}},
                UpdateExpression="SET "
                + ", ".join(f"#{name} = :{name}" for name in item)
                + ("" if EXPIRES in item else f" REMOVE #{EXPIRES}"),
                ConditionExpression=condition,
                ExpressionAttributeNames={f"#{name}": name for name in (*item, EXPIRES)},
                ExpressionAttributeValues=values,
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except Changed as error:
            # A proxy may have repeated the request after its own lost reply, which then fails on the first write.
            return error.item.get(NONCE) == {"S": new}
        return True

    def ask(self, operation: str, **how: object) -> Reply:
        """Perform a request; repeat it while DynamoDB throttles.

        Raises:
            Changed: the condition of the write was not fulfilled.
            Refused, Unreachable: nothing was done.
            UnknownOutcome: there was no reply.
        """
        deadline, pause = clock.now() + min(self._timeout, PATIENCE), FIRST_PAUSE
        # Once, if the connection ended, but no write, which could fail on its own first performance.
        again = operation != "update_item"
        while True:
            try:
                if not self._checked:
                    self._check()
                return self.ask_once(operation, **how)
            except ConnectionEnded:
                if not again:
                    raise
                again = False
                continue
            except Refused as error:
                if error.code == NO_TABLE:  # somebody has deleted it
                    self._checked = False
                elif not isinstance(error, TransientRefusal):
                    raise
                if clock.now() + pause > deadline:
                    raise
            sleep(pause * (0.5 + random()))
            pause = min(2 * pause, LONGEST_PAUSE)

    def ask_once(self, operation: str, **how: object) -> Reply:
        """Perform a request without a retry, and use the time of its reply; otherwise like `ask`."""
        me = rt.caller()
        if me in self._inside:  # the locks of the client are not re-entrant
            raise StoreError(WITHIN_A_STEP)
        sent = clock.awake_or_not()
        try:
            self._inside.add(me)
            reply: Reply = getattr(self._client, operation)(TableName=self.name, **how)
        except ClientError as error:
            self._saw(error.response, sent)
            raise self._refusal(error.response) from error
        except (BotoCoreError, ResponseParserError) as error:
            raise self._failure(error) from error
        finally:
            self._inside.discard(me)
        self._saw(reply, sent)
        return reply

    def _saw(self, reply: Reply, sent: float) -> None:
        date = reply["ResponseMetadata"].get("HTTPHeaders", {}).get("date")
        if date is not None:
            at = parsedate_to_datetime(date).timestamp()
            self.clock.saw(at, at + 1.0, sent, clock.awake_or_not())

    def _refusal(self, response: Reply) -> StoreError:
        code, text = str(response["Error"].get("Code")), response["Error"].get("Message") or "no message"
        said = f"{self.where}: {code}: {text}"
        if response["ResponseMetadata"].get("HTTPStatusCode", 500) >= 500:
            return UnknownOutcome(said)
        if code in FORBIDDEN:
            skewed = any(words in text for words in SKEWED)
            return Denied(f"{said}. {'Set the clock of this machine (NTP).' if skewed else CREDENTIALS}")
        refused = TransientRefusal(said) if code in THROTTLED else Changed(said) if code == CHANGED else Refused(said)
        refused.code = code
        if isinstance(refused, Changed):
            refused.item = response.get("Item", {})
        return refused

    def _failure(self, error: Exception) -> StoreError:
        if isinstance(error, ReadTimeoutError):
            return no_answer(self.where, self._timeout)
        if isinstance(error, ConnectionClosedError):
            return ended(self.where, error)
        if isinstance(error, (ConnectTimeoutError, EndpointConnectionError, ProxyConnectionError)):
            return Unreachable(f"Cannot reach {self.where}: {error}")
        if isinstance(error, SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
            return Denied(f"{self.where}: {error}. Check the endpoint, or give the certificate by AWS_CA_BUNDLE.")
        if isinstance(error, LOST):
            return UnknownOutcome(f"{self.where}: {error}")
        return Denied(f"{self.where}: {error}. {CREDENTIALS}")  # nothing was sent

    def _check(self) -> None:
        """Check that the table is suitable for locks; create it if it does not exist.

        Raises:
            StoreError: it is not suitable, or must not be created.
            TransientRefusal: it is not ready in time.
        """
        until, created = clock.now() + CREATION_LIMIT, False
        while (table := self._described())["TableStatus"] in ("", "CREATING", "DELETING"):
            if not table["TableStatus"]:
                created |= self._created()
            if clock.now() > until:
                raise TransientRefusal(
                    f"{self.where} is not ready after {CREATION_LIMIT:g} s. Check the table in the AWS console."
                )
            sleep(CREATION_PAUSE)
        if table.get("Replicas") or table.get("GlobalTableVersion") == "2017.11.29":
            raise StoreError(
                f"{self.where} is a global table: two regions could grant one lock. Use a table without replicas."
            )
        if table["KeySchema"] != [{"AttributeName": KEY, "KeyType": "HASH"}]:
            raise StoreError(
                f"{self.where} has a different key schema (expected one string key, {KEY!r}). Use a separate table."
            )
        self._checked = True
        if created:
            about = {"Enabled": True, "AttributeName": EXPIRES}
            try:
                self.ask_once("update_time_to_live", TimeToLiveSpecification=about)
            except StoreError as error:
                log.warn("Unused names will stay in the table, see doctor: %s", error)

    def _described(self) -> Reply:
        """Return the description of the table; its TableStatus is empty if there is none."""
        try:
            about: Reply = self.ask_once("describe_table")["Table"]
            return about
        except Refused as error:
            if error.code != NO_TABLE:
                raise
            return {"TableStatus": ""}

    def _created(self) -> bool:
        """Begin to create the table; return False if somebody else does."""
        if not self._create:
            raise StoreError(f"{self.where} does not exist. {TO_CREATE}")
        try:
            self.ask_once(
                "create_table", KeySchema=[{"AttributeName": KEY, "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": KEY, "AttributeType": "S"}], BillingMode="PAY_PER_REQUEST",
            )  # fmt: skip
        except Refused as error:
            if error.code != TAKEN:
                raise
            return False
        return True

    def close(self) -> None:
        """Close all connections."""
        self._client.close()
