"""Payloads of `once`: which values are accepted, and from what they are made."""

import math
import pickle
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from interlock import InvalidArgument, Locks, PayloadMismatch, connect

MINUTE = 60.0
CIRCULAR: list[Any] = []
CIRCULAR.append(CIRCULAR)


@pytest.fixture
def locks() -> Iterator[Locks]:
    """Locks of threads."""
    with connect(f"memory://{uuid4().hex}") as found:
        yield found


@pytest.mark.parametrize(
    "payload",
    [math.nan, {"a": [math.inf]}, {1, 2}, object(), {"a": b"bytes inside"}, CIRCULAR, {1: 0, "1": 0}],
    ids=["NaN", "infinity", "set", "object", "bytes in JSON", "circular", "mixed keys"],
)
def test_a_payload_that_is_not_json_is_refused(locks: Locks, payload: object) -> None:
    with pytest.raises(InvalidArgument, match="payload must be bytes or a JSON value"):
        locks.once("pay", keep=MINUTE, payload=payload)
    with pytest.raises(InvalidArgument, match="payload must be bytes or a JSON value"):
        locks.once("pay", keep=MINUTE, payload=lambda: payload).run(lambda: 0)
    assert locks.claims() == []


@pytest.mark.parametrize("payload", [bytearray(b"a"), memoryview(b"a")], ids=["bytearray", "memoryview"])
def test_all_kinds_of_bytes_are_equal(locks: Locks, payload: object) -> None:
    locks.once("pay", keep=MINUTE, payload=b"a").run(lambda: 0)
    assert locks.once("pay", keep=MINUTE, payload=payload).run(lambda: 1) == 0


def test_a_payload_is_read_when_it_is_given(locks: Locks) -> None:
    payload = {"a": 1}
    once = locks.once("pay", keep=MINUTE, payload=payload)
    payload["a"] = 2
    once.run(lambda: 0)
    assert locks.once("pay", keep=MINUTE, payload={"a": 1}).run(lambda: 1) == 0


def test_the_digest_depends_on_the_namespace() -> None:
    labels = []
    for namespace in ("a", "b"):
        with connect("memory://", namespace=namespace) as locks:
            with locks.once("pay", keep=MINUTE, payload=b"a"):
                labels += [view.label for view in locks.claims("pay")]
    assert len(set(labels)) == 2


def test_a_function_gets_the_arguments_of_run(locks: Locks) -> None:
    once = locks.once("pay", keep=MINUTE, payload=lambda amount, **how: [amount, how])
    assert once.run(lambda amount, to: amount, 7, to="ann") == 7
    with pytest.raises(PayloadMismatch):
        once.run(lambda amount, to: amount, 7, to="bob")


def test_a_function_of_a_method_gets_the_object(locks: Locks) -> None:
    class Account:
        owner = "ann"

        @locks.once("pay", keep=MINUTE, payload=lambda account, amount: [account.owner, amount])
        def pay(self, amount: int) -> int:
            return amount

    assert Account().pay(7) == 7
    with pytest.raises(PayloadMismatch):
        Account().pay(8)


def test_an_exception_of_the_function_begins_no_run(locks: Locks) -> None:
    with pytest.raises(ZeroDivisionError):
        locks.once("pay", keep=MINUTE, payload=lambda: 1 / 0).run(lambda: 0)
    assert locks.claims() == []


def test_the_error_survives_another_process() -> None:
    again = pickle.loads(pickle.dumps(PayloadMismatch("text", "pay")))
    assert (str(again), again.name) == ("text", "pay")


def test_a_record_has_no_payload_in_listings(locks: Locks) -> None:
    locks.once("pay", keep=MINUTE, payload=b"a", label="of ann").run(lambda: 0)
    (record,) = locks.claims("pay")
    assert record.label == ""
    assert locks.is_done("pay")
