"""The payload of a run of `once`: the same name with another payload is refused."""

from collections.abc import Generator
from typing import Any

import pytest

from interlock.core.claims import MAX_INSTANCE
from interlock.core.errors import LockTimeout, NotKept, PayloadMismatch
from interlock.testing.actors import Actor
from interlock.testing.contract.fixtures import needs
from interlock.testing.contract.once import Work
from interlock.testing.faults import Failing
from interlock.testing.store_fixture import ContractWorld

MINUTE = 60.0


@pytest.mark.parametrize(
    ("first", "again", "other"),
    [
        (b"a=1", b"a=1", b"a=2"),
        ({"a": 1, "b": [None, True]}, {"b": (None, True), "a": 1}, {"a": 1, "b": [None]}),
        ({"a": 1}, {"a": 1}, b'{"a":1}'),
        ("", "", b""),
        (0, 0, False),
    ],
    ids=["bytes", "JSON", "JSON, then its bytes", "nothing", "zero"],
)
@needs("once")
def test_the_record_refuses_another_payload(
    world: ContractWorld, ann: Actor, bob: Actor, first: Any, again: Any, other: Any
) -> None:
    work = Work(world)
    assert ann.do(world.connect().once(world.name, keep=MINUTE, payload=first).run, work.function)["run"] == 1
    locks = world.connect()
    assert bob.do(locks.once(world.name, keep=MINUTE, payload=again).run, work.function)["run"] == 1
    refused = locks.once(world.name, keep=MINUTE, payload=other)
    with pytest.raises(PayloadMismatch, match="new name") as raised:
        bob.do(refused.run, work.function)
    with pytest.raises(PayloadMismatch):
        bob.within(refused, lambda run: None)
    assert raised.value.name == world.name
    assert work.runs == 1


@pytest.mark.parametrize(("first", "second"), [(None, b"a"), (b"a", None)], ids=["without", "with"])
@needs("once")
def test_a_record_matches_a_call_if_one_has_no_payload(
    world: ContractWorld, locks: Any, ann: Actor, first: bytes | None, second: bytes | None
) -> None:
    work = Work(world)
    for payload in (first, second):
        assert ann.do(locks.once(world.name, keep=MINUTE, payload=payload).run, work.function)["run"] == 1


@pytest.mark.parametrize("label", [None, "ä" * 200], ids=["no label", "longest label"])
@pytest.mark.parametrize("instance", [None, "!" * MAX_INSTANCE], ids=["no instance", "longest instance"])
@needs("once")
def test_a_running_call_refuses_another_payload(
    world: ContractWorld, ann: Actor, bob: Actor, label: str | None, instance: str | None
) -> None:
    locks = world.connect(instance=instance)
    gate = world.gate()
    work = Work(world, gate=gate)
    running = ann.start(locks.once(world.name, keep=MINUTE, payload=b"a", label=label).run, work.function)
    assert work.begun.acquire(timeout=20)
    others = world.connect()
    for how in ({}, {"timeout": 60.0}, {"on_busy": "raise"}, {"on_busy": "skip"}):
        with pytest.raises(PayloadMismatch, match="in progress"):
            bob.do(others.once(world.name, keep=MINUTE, payload=b"b", **how).run, work.function)
    assert len(world.eye.claims(world.name)) == 1
    assert not running.done()
    gate.open()
    assert running.result(20)["run"] == work.runs == 1


@needs("once")
def test_a_running_call_lets_equal_payloads_and_none_wait(
    world: ContractWorld, locks: Any, ann: Actor, bob: Actor
) -> None:
    gate = world.gate()
    work = Work(world, gate=gate)
    running = ann.start(locks.once(world.name, keep=MINUTE, payload=b"a").run, work.function)
    assert work.begun.acquire(timeout=20)
    waiting = [
        world.in_line(world.actor().start, world.connect().once(world.name, keep=MINUTE, **how).run, work.function)
        for how in ({"payload": b"a"}, {})
    ]
    with pytest.raises(LockTimeout):
        bob.do(locks.once(world.name, keep=MINUTE, payload=b"a", on_busy="raise").run, work.function)
    gate.open()
    assert [each.result(20)["run"] for each in (running, *waiting)] == [1, 1, 1]


@pytest.mark.parametrize("label", ["of ann", "payload:ann"])
@needs("once")
def test_a_running_call_without_a_payload_refuses_none(
    world: ContractWorld, locks: Any, ann: Actor, bob: Actor, label: str
) -> None:
    gate = world.gate()
    work = Work(world, gate=gate)
    running = ann.start(locks.once(world.name, keep=MINUTE, label=label).run, work.function)
    assert work.begun.acquire(timeout=20)
    waiting = world.in_line(bob.start, world.connect().once(world.name, keep=MINUTE, payload=b"b").run, work.function)
    gate.open()
    assert running.result(20)["run"] == waiting.result(20)["run"] == 1


@needs("once")
def test_who_waited_for_a_failed_run_records_its_payload(
    world: ContractWorld, locks: Any, ann: Actor, bob: Actor
) -> None:
    gate = world.gate()
    fails, works = Work(world, ZeroDivisionError("no"), gate), Work(world)
    failing = ann.start(locks.once(world.name, keep=MINUTE, payload=b"a").run, fails.function)
    assert fails.begun.acquire(timeout=20)
    waiting = world.in_line(bob.start, locks.once(world.name, keep=MINUTE, payload=b"a").run, works.function)
    gate.open()
    with pytest.raises(ZeroDivisionError):
        failing.result(20)
    assert waiting.result(20)["run"] == 1
    with pytest.raises(PayloadMismatch):
        ann.do(locks.once(world.name, keep=MINUTE, payload=b"b").run, works.function)


@needs("once")
def test_after_a_failed_or_forgotten_run_another_payload_runs(world: ContractWorld, locks: Any, ann: Actor) -> None:
    with pytest.raises(ZeroDivisionError):
        ann.do(locks.once(world.name, keep=MINUTE, payload=b"a").run, Work(world, ZeroDivisionError("no")).function)
    work = Work(world)
    for number, payload in enumerate((b"b", b"c"), start=1):
        assert ann.do(locks.once(world.name, keep=MINUTE, payload=payload).run, work.function)["run"] == number
        assert ann.do(locks.forget, world.name) is True


@needs("once")
def test_the_store_gets_a_digest_that_depends_on_the_name(world: ContractWorld, locks: Any, ann: Actor) -> None:
    labels, records = [], []
    queue = world.place.open().queue()
    for name in (world.name, world.fresh_name()):
        once = locks.once(name, keep=MINUTE, payload=b"top secret", label="pay")
        labels += [view.label for view in ann.within(once, lambda run: world.eye.claims()) if view.id]
        records.append(str(queue.run_result(world.key(name))))
    queue.close()
    assert all(label.startswith("payload:") and label.endswith(" pay") for label in labels)
    digests = [label.removeprefix("payload:").removesuffix(" pay") for label in labels]
    assert [digest in record for digest, record in zip(digests, records, strict=True)] == [True, True]
    assert digests[0] != digests[1]
    assert "secret" not in "".join(labels + records)


@needs("once")
def test_the_largest_result_is_kept_beside_a_digest(world: ContractWorld, locks: Any, ann: Actor) -> None:
    once, largest = locks.once(world.name, keep=MINUTE, payload=b"a"), "x" * 65_534

    def body(run: Any) -> None:
        run.result = largest

    ann.within(once, body)
    assert ann.within(once, lambda run: run.result) == largest


@needs("once")
def test_a_result_that_was_not_kept_hides_no_mismatch(world: ContractWorld, locks: Any, ann: Actor) -> None:
    def body(run: Any) -> None:
        run.result = {1, 2}

    with pytest.raises(ValueError, match="recorded as done"):
        ann.within(locks.once(world.name, keep=MINUTE, payload=b"a"), body)
    for payload, error in ((b"a", NotKept), (None, NotKept), (b"b", PayloadMismatch)):
        with pytest.raises(error):
            ann.do(locks.once(world.name, keep=MINUTE, payload=payload).run, Work(world).function)


@needs("once")
def test_a_failed_look_at_a_running_call_leaves_the_wait(world: ContractWorld, ann: Actor, bob: Actor) -> None:
    gate = world.gate()
    work = Work(world, gate=gate)
    running = ann.start(world.connect().once(world.name, keep=MINUTE, payload=b"a").run, work.function)
    assert work.begun.acquire(timeout=20)
    blind, _ = world.connect_with(lambda store: Failing(store, "look"))
    waiting = world.in_line(bob.start, blind.once(world.name, keep=MINUTE, payload=b"b").run, work.function)
    gate.open()
    assert running.result(20)["run"] == 1
    with pytest.raises(PayloadMismatch, match="completed"):
        waiting.result(20)


@needs("once")
def test_a_decorator_makes_the_payload_of_the_arguments(world: ContractWorld, locks: Any, ann: Actor) -> None:
    work = Work(world)

    def steps(event: int, body: Any) -> Generator[Any, Any, Any]:
        return (yield from world.result(work.function(event)))

    once = locks.once(world.name + ":{event}", keep=MINUTE, payload=lambda event, body: body)
    handle = once(world.function(steps))
    runs = [ann.do(handle, 7, b"a"), ann.do(handle, event=7, body=b"a"), ann.do(handle, 8, b"b")]
    assert [each["run"] for each in runs] == [1, 1, 2]
    with pytest.raises(PayloadMismatch, match=":7'"):
        ann.do(handle, 7, b"b")
    assert ann.do(handle, 7, None)["run"] == 1
    assert work.runs == 2
