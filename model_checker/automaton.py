"""A protocol as a finite automaton, extracted from its own code during the exploration.

A protocol is a coroutine function (or a generator function): it suspends with a request and is resumed with the
result, or with an exception thrown into it. A coroutine cannot be copied, so a local state is stored as the history
of results that leads to it, and is rebuilt by replay. Two histories lead to the same local state if the suspended
coroutine is the same after both: the same code position and the same live variables, along the whole chain of
`await`.

This is correct as long as a protocol keeps its whole state in variables. Hidden state (a counter in an object, for
example) would merge states that differ. So every local state keeps a few of the other histories that lead to it, and
checks that they continue alike; if not, `HiddenState` says where.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator, Hashable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, Literal, NamedTuple

from model_checker.snapshot import Position, frozen, snapshot

History = tuple[object, ...]
Protocol = Generator[Any, Any, Any] | Coroutine[Any, Any, Any]
Factory = Callable[[], Protocol]


class Final(NamedTuple):
    """The last "request" of a protocol that has ended: ("done", value) or ("raised", exception)."""

    how: Literal["done", "raised"]
    value: Any


class HiddenState(AssertionError):
    """A protocol has state outside its variables, or is not deterministic."""


class _Key(NamedTuple):
    """What identifies a local state."""

    positions: tuple[Position, ...]
    """The code positions; empty if it has ended."""
    values: tuple[Hashable, ...]
    """Its request, and the live variables."""


class Automaton:
    """The automaton of one protocol; local states are numbered from 0 in the order of discovery.

    `requests[local]` is the request with which the protocol is suspended in a local state, or a `Final`.

    Args:
        factory: makes a fresh coroutine or generator, the same at every call.
        witnesses: how many further histories of each local state are compared with the first one.
    """

    def __init__(self, factory: Factory, *, witnesses: int = 3) -> None:
        self.requests: list[Any] = []
        self._factory = factory
        self._capacity = witnesses
        self._index: dict[_Key, int] = {}
        self._keys: list[_Key] = []
        self._histories: list[History] = []
        self._witnesses: list[list[History]] = []
        self._moves: list[dict[Hashable, int]] = []
        self._results: list[list[object]] = []
        self._renamings: dict[tuple[int, str, str], int] = {}
        self._mentions: dict[int, frozenset[Hashable]] = {}
        self._unchecked: deque[tuple[int, History]] = deque()
        self.start = self._local(())

    def __len__(self) -> int:
        return len(self.requests)

    def step(self, local: int, result: object) -> int:
        """Return the local state after `local` when its request is answered by `result`.

        Args:
            local: the number of a local state.
            result: the value sent into the protocol. An exception is thrown into it instead.

        Raises:
            HiddenState: the protocol does not behave as a function of its variables.
        """
        try:
            return self._moves[local][result.__class__, result]
        except (KeyError, TypeError):  # not known yet, or cannot be hashed
            return self._extract(local, result)

    def rename(self, local: int, old: str, new: str) -> int:
        """Return the local state that differs from `local` only in a name that it holds.

        Args:
            local: the number of a local state.
            old: the name; nothing changes if the local state does not hold it.
            new: a name that the local state does not hold.

        Raises:
            ValueError: two names would become one.
            HiddenState: the protocol depends on more than the equality of names (on their order, say).
        """
        held = self.mentions(local)
        if old not in held:
            return local
        if new in held:
            raise ValueError(f"{new!r} is held by the local state already")
        known = self._renamings.get((local, old, new))
        if known is None:
            known = self._renamings[local, old, new] = self._renamed(local, {old: new, new: old})
        return known

    def mentions(self, local: int) -> frozenset[Hashable]:
        """Return every value that a local state holds, in its live variables or its request, at any depth."""
        known = self._mentions.get(local)
        if known is None:
            known = self._mentions[local] = frozenset(_mentioned(self._keys[local].values))
        return known

    def where(self, local: int) -> str:
        """Return the code position of a local state as text: "acquire (pending.py:41)"."""
        return _place(self._keys[local])

    def _extract(self, local: int, result: object) -> int:
        moves = self._moves[local]
        move = _move(result)
        target = moves.get(move)
        if target is None:
            target = moves[move] = self._local((*self._histories[local], result))
            self._results[local].append(result)
            for other in self._witnesses[local]:
                self._compare(local, other, result, target)
            while self._unchecked:
                witnessed, other = self._unchecked.popleft()
                for known in list(self._results[witnessed]):
                    self._compare(witnessed, other, known, self._moves[witnessed][_move(known)])
        return target

    def _local(self, history: History) -> int:
        request, key = self._replay(history)
        local = self._index.get(key)
        if local is None:
            local = self._index[key] = len(self.requests)
            self.requests.append(request)
            self._keys.append(key)
            self._histories.append(history)
            self._witnesses.append([])
            self._moves.append({})
            self._results.append([])
        else:
            self._witness(local, history)
        return local

    def _witness(self, local: int, history: History) -> None:
        """Keep another history of a known local state, if there is room, and compare it later."""
        others = self._witnesses[local]
        if len(others) < self._capacity and history != self._histories[local] and history not in others:
            others.append(history)
            self._unchecked.append((local, history))

    def _compare(self, local: int, history: History, result: object, target: int) -> None:
        longer = (*history, result)
        _, key = self._replay(longer)
        if key != self._keys[target]:
            raise HiddenState(
                f"hidden local state: {self.where(local)} was reached by two histories with equal variables, "
                f"but after the answer {result!r} one goes to {self.where(target)} and the other to "
                f"{_place(key)}, or to other variables there. A protocol must keep all that it remembers in "
                f"local variables, and depend on nothing else. "
                f"The histories: {self._histories[local]!r} and {history!r}."
            )
        self._witness(target, longer)

    def _renamed(self, local: int, names: dict[str, str]) -> int:
        target = self._local(_exchanged(self._histories[local], names))
        if self._keys[target].values != _exchanged(self._keys[local].values, names):
            raise HiddenState(
                f"{self.where(local)} is not the same state when {names!r} are exchanged in its whole "
                f"history: it depends on more than the equality of these names"
            )
        return target

    def _replay(self, history: History) -> tuple[Any, _Key]:
        """Run a fresh protocol through a history; return its request and the key of the local state."""
        protocol = self._factory()
        thrown: object = None
        try:
            request = protocol.send(None)
            for result in history:
                if isinstance(result, BaseException):
                    thrown = result
                    request = protocol.throw(_clean(result))
                else:
                    request = protocol.send(result)
        except StopIteration as end:
            return Final("done", end.value), _Key((), ("done", frozen(end.value)))
        except BaseException as error:
            if not isinstance(error, Exception) and error is not thrown:
                raise  # the checker itself was interrupted
            return Final("raised", _clean(error)), _Key((), ("raised", frozen(error)))
        positions, values = snapshot(protocol)
        with suppress(RuntimeError):  # one that yields again when it is closed is wrong, but not judged here
            protocol.close()
        return request, _Key(positions, (frozen(request), *values))


def _mentioned(key: Hashable) -> Iterator[Hashable]:
    """Yield every value in a key that may be a name."""
    yield key
    if isinstance(key, tuple | frozenset):
        for item in key:
            yield from _mentioned(item)


def _exchanged(value: Any, names: Mapping[str, str]) -> Any:
    """Return the value with names exchanged, in tuples at any depth."""
    if isinstance(value, tuple):
        return tuple.__new__(type(value), [_exchanged(item, names) for item in value])
    return names.get(value, value) if isinstance(value, str) else value


def _place(key: _Key) -> str:
    if not key.positions:
        return "its end"
    code, offset, _ = key.positions[-1]
    line = next(islice(code.co_positions(), offset // 2, None))[0]
    return f"{code.co_qualname} ({code.co_filename.rsplit('/', 1)[-1]}:{line})"


def _move(result: object) -> Hashable:
    """The key of a result among the moves of a local state; equal exceptions are one result, and equal lists."""
    if not isinstance(result, BaseException):
        try:
            hash(result)
        except TypeError:
            pass
        else:
            return (result.__class__, result)
    return ("frozen", frozen(result))


def _clean(error: BaseException) -> BaseException:
    """An exception without the traceback and context of an earlier replay."""
    error.__traceback__ = error.__context__ = None
    return error
