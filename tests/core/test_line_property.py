"""Stores that decide by `core.line` answer as the reference does, and tell the same waiters, whatever is asked."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock.client.connect import open_store
from interlock.core.store import Store
from interlock.runtime import clock
from interlock.stores.memory import MemoryStore, Space
from tests.support.line_property import Game
from tests.support.texts import Texts, TextStore

GAMES, STEPS = 30, 150
STORES: dict[str, Callable[[Path], Store]] = {
    "sqlite": lambda folder: open_store(f"sqlite:///{folder}/locks.db"),
    "texts": lambda folder: TextStore(Texts(lambda: clock.time_of_day())),
}


@pytest.fixture
def pass_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets time pass by the clocks of the library, and of the stores here."""
    passed = 0.0
    for name in ("now", "awake_or_not", "time_of_day"):
        monkeypatch.setattr(clock, name, lambda real=getattr(clock, name): real() + passed)

    def let_pass(seconds: float) -> None:
        nonlocal passed
        passed += seconds

    return let_pass


@pytest.mark.parametrize("name", STORES)
def test_a_store_answers_as_the_reference(name: str, tmp_path: Path, pass_time: Callable[[float], None]) -> None:
    for seed in range(GAMES):
        rng = random.Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        store: Any = STORES[name](folder)
        reference: Any = MemoryStore(Space(lambda: clock.now()))
        queue, model = store.queue(), reference.queue()
        try:
            Game((model, queue), rng, pass_time).play(STEPS)
        finally:
            queue.close()
