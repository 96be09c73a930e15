"""interlock on files with all of its compiled part, without one entry point of it, and without any."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

from bench.contestants import locks, needs
from bench.model import Contestant, Place, Unavailable

T = TypeVar("T")
ALL, NONE = "all compiled", "Python only"
NOT_DONE = 0
NO_CAPACITY = 0  # `leave` hands over exclusive locks only


def parts() -> dict[str, Callable[[Any], Any]]:
    """The contestants: by name, what each puts in the place of the compiled module."""

    def without(**changed: Callable[..., Any]) -> Callable[[Any], Any]:
        return lambda native: SimpleNamespace(
            **{"enter": native.enter, "join": native.join, "leave": native.leave} | changed
        )

    def without_hand_over(native: Any) -> Any:
        def leave(line: Any, id: str, capacity: int, *others: Any) -> Any:
            return native.leave(line, id, NO_CAPACITY, *others)

        return without(leave=leave)(native)

    return {
        ALL: lambda native: native,
        "without enter": without(enter=lambda *arguments: NOT_DONE),
        "without join": without(join=lambda *arguments: None),
        "without hand-over": without_hand_over,
        "without leave": without(leave=lambda *arguments: NOT_DONE),
        NONE: lambda native: None,
    }


def contestants(build: Callable[[Callable[[Place], Any]], Callable[[Place], T]]) -> tuple[Contestant[T], ...]:
    """One contestant for each way; `build` makes of a way to lock what the scenario's `work` takes."""

    def row(name: str, change: Callable[[Any], Any]) -> Contestant[T]:
        def make(place: Place) -> Any:
            from interlock.stores.files import opened

            opened.native = change(opened.native)
            return locks.interlock_file(place)

        return Contestant(name, build(make), compiled, "ours")

    return tuple(row(name, change) for name, change in parts().items())


def compiled() -> None:
    """Raise `Unavailable` where the compiled part was not built."""
    needs.interlock()
    from interlock.stores.files import opened

    if opened.native is None:
        raise Unavailable("the compiled part of interlock; install it where there is a C compiler")
