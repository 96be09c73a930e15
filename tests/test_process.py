"""What is found when the process forks or ends."""

import gc
import weakref

from interlock.runtime.process import WeakRegistry


class Thing:
    """Something that can be referred to weakly."""


def test_what_lives_is_found_in_the_order_in_which_it_came() -> None:
    things = [Thing() for _ in range(100)]
    living: WeakRegistry[Thing] = WeakRegistry()
    for thing in things:
        living.add(thing)
    assert list(living) == things


def test_what_has_died_is_not_found_and_not_kept() -> None:
    living: WeakRegistry[Thing] = WeakRegistry()
    kept = Thing()
    living.add(kept)
    for _ in range(1000):
        living.add(Thing())
        gc.collect(0)
    assert list(living) == [kept]
    assert len(living._refs) <= 32


def test_nothing_runs_when_one_dies() -> None:
    living: WeakRegistry[Thing] = WeakRegistry()
    thing = Thing()
    living.add(thing)
    (ref,) = weakref.getweakrefs(thing)
    assert ref.__callback__ is None
