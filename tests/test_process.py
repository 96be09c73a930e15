"""What is found when the process forks or ends."""

import gc
import weakref

from interlock.runtime.process import WeakRegistry


class Thing:
    """Something that can be referred to weakly."""


def test_what_lives_is_found_in_the_order_in_which_it_came() -> None:
    things = [Thing() for _ in range(100)]
    registry: WeakRegistry[Thing] = WeakRegistry()
    for thing in things:
        registry.add(thing)
    assert list(registry) == things


def test_what_has_died_is_not_found_and_not_kept() -> None:
    registry: WeakRegistry[Thing] = WeakRegistry()
    kept = Thing()
    registry.add(kept)
    for _ in range(1000):
        registry.add(Thing())
        gc.collect(0)
    assert list(registry) == [kept]
    assert len(registry._refs) <= 32


def test_nothing_runs_when_one_dies() -> None:
    registry: WeakRegistry[Thing] = WeakRegistry()
    thing = Thing()
    registry.add(thing)
    (ref,) = weakref.getweakrefs(thing)
    assert ref.__callback__ is None
