"""Names: any text up to 1,000 characters; different names are different locks."""

import asyncio
import itertools
import threading
from contextlib import closing
from typing import Any

import pytest

from interlock.testing.actors import Actor
from interlock.testing.contract.fixtures import of_threads
from interlock.testing.store_fixture import ContractWorld

ODD = [
    " ", ".", "..", "/", "../../etc/passwd", "a/b", "a\\b", "C:\\x", "~", "-rf", "con", "a\nb", "a\tb", "\x01",
    "\x7f", "%00", "%2F", "{tag}", "a{b}c", "*", "?", "[a]", "'; drop table locks; --", '"', "$HOME", "`id`",
    "<b>", "&", "a:b:c", "ä", "a\u0308", "\u00e4", "日本語", "🔒", "\u202e", "\ufeff", "ß", "SS", "\u0131",
    "\u0130", "x" * 1000, "🔒" * 1000, "/" * 1000, "interlock", "using", "pending", "None", "0", "a" * 255,
    "a" * 256, "book:1",
]  # fmt: skip


@pytest.mark.parametrize("name", ODD, ids=range(len(ODD)))
def test_an_odd_name_locks_and_is_told_as_it_is(
    world: ContractWorld, name: str, locks: Any, ann: Actor, bob: Actor
) -> None:
    grant = ann.do(locks.lock(name).acquire)
    assert grant.name == name
    assert [view.name for view in world.holders(name)] == [name]
    assert bob.do(locks.lock(name).acquire, timeout=0) is None
    assert ann.do(grant.release) is True
    assert world.nothing_left(name)


def test_long_names_that_differ_slightly_do_not_collide(world: ContractWorld, locks: Any, ann: Actor) -> None:
    names = [f"{'long ' * 60}{number} {'tail ' * 60}" for number in range(100)]
    grants = [ann.do(locks.lock(name).acquire, timeout=0) for name in names]
    assert None not in grants
    assert sorted(view.name for view in world.eye.claims() if view.name in names) == sorted(names)
    assert all(ann.do(grant.release) for grant in grants)


def test_namespaces_are_separate(world: ContractWorld, ann: Actor, bob: Actor) -> None:
    spaces = ["", "app", "App", "app:", "ap", "p", "a\u0308", "x" * 1000]
    grants = [ann.do(world.connect(namespace=space).lock(world.name).acquire, timeout=0) for space in spaces]
    assert None not in grants
    for space, grant in zip(spaces, grants, strict=True):
        locks = world.connect(namespace=space)
        assert bob.do(locks.lock(world.name).acquire, timeout=0) is None
        assert [view.id for view in bob.do(locks.claims)] == [grant.id]
        assert [view.name for view in bob.do(locks.claims, world.name)] == [world.name]


def test_namespace_and_name_do_not_run_into_each_other(world: ContractWorld, ann: Actor) -> None:
    parts = ["a", "ab", "a:b", "b", ":b", "b:"]
    grants = [
        ann.do(world.connect(namespace=space).lock(name).acquire, timeout=0)
        for space, name in itertools.product(parts, parts)
    ]
    assert None not in grants


@of_threads
def test_a_store_that_knows_namespaces_tells_those_in_use(world: ContractWorld, ann: Actor) -> None:
    with closing(world.connect().store.queue()) as queue:
        spaces = ["", "a:b", "}", "日本語"]
        grants = [ann.do(world.connect(namespace=space).lock(world.name).acquire) for space in spaces]
        assert sorted(queue.namespaces()) == spaces
        ann.do(grants[1].release)
        assert sorted(queue.namespaces()) == ["", "}", "日本語"]


@pytest.mark.parametrize("odd", ["\ud800", "a\0b", "two\nlines", "tab\t", "\x1b[31m", "", "日本", "n" * 5000])
def test_an_odd_name_of_a_thread_or_task_is_no_obstacle(world: ContractWorld, odd: str, ann: Actor) -> None:
    lock = world.connect().lock(world.name, label="label")

    def rename() -> None:
        threading.current_thread().name = odd

    async def rename_task() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.set_name(odd)

    ann.do(rename if world.sync_or_async == "threads" else rename_task)
    grant = ann.do(lock.acquire, timeout=0)
    (view,) = world.holders()
    assert view.thread.isprintable()
    assert (view.label, view.id) == ("label", grant.id)
    assert ("日本" in view.thread) is (odd == "日本")
    assert ann.do(grant.release) is True
