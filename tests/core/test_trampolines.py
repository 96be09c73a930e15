"""What performs protocols: an error leaves nothing behind."""

import asyncio
import gc
from collections.abc import Callable, Iterator
from typing import Any
from weakref import ref

import pytest

from interlock.core.effects import Ask, Op
from interlock.runtime.aio import arun
from interlock.runtime.sync import run


class Broken(Exception):
    """What the server raises."""


class Server:
    """Answers nothing."""

    def ask(self, message: Any) -> Any:
        raise Broken

    async def aask(self, message: Any) -> Any:
        raise Broken


def asking() -> Op[None]:
    yield Ask(Server(), "?")


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Nothing is freed but what nobody refers to."""
    gc.disable()
    yield
    gc.enable()


def error_of_thread(op: Op[None]) -> Any:
    try:
        run(op)
    except Broken as error:
        return ref(error)


async def error_of_task(op: Op[None]) -> Any:
    try:
        await arun(op)
    except Broken as error:
        return ref(error)


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("error_of", [error_of_thread, lambda op: asyncio.run(error_of_task(op))])
def test_an_error_that_was_handled_is_gone_with_all_that_called(error_of: Callable[[Op[None]], Any]) -> None:
    op = asking()
    kept = ref(op)
    error = error_of(op)
    del op
    assert (error(), kept()) == (None, None)
