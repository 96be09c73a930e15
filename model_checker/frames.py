"""Liveness of local variables, computed from the bytecode: which variables of a suspended frame still matter.

A variable that will be written before it is read again cannot influence the next actions. Leaving such variables out
of a local state keeps the automaton small without a `del` in the protocol's code.
"""

from __future__ import annotations

import dis
import re
from functools import cache
from itertools import pairwise
from types import CodeType
from typing import NamedTuple

# Super-instructions such as STORE_FAST_LOAD_FAST hold several accesses, in the order in which they happen.
_ACCESS = re.compile(r"(LOAD|STORE|DELETE)_(?:FAST|DEREF|CLOSURE)")
_NO_FALL_THROUGH = frozenset(
    {"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD"}
    | {"JUMP_BACKWARD_NO_INTERRUPT"}
)
_JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)


class _Instruction(NamedTuple):
    offset: int
    read: frozenset[str]
    written: frozenset[str]
    after: tuple[int, ...]
    """Offsets of the instructions that may run next."""
    handlers: tuple[int, ...]
    """Offsets of the exception handlers that cover this instruction."""


@cache
def live_variables(code: CodeType) -> dict[int, frozenset[str]]:
    """Return, for the offset of every instruction, the names of the variables that may be read after it.

    Args:
        code: the code of a function. Local, cell and free variables are all considered.
    """
    instructions = _instructions(code)
    before: dict[int, frozenset[str]] = dict.fromkeys((each.offset for each in instructions), frozenset())
    after = dict(before)
    settled = False
    while not settled:
        settled = True
        for each in reversed(instructions):
            out = frozenset().union(*(before[offset] for offset in each.after + each.handlers))
            # A handler may run before the instruction has written: the variables that it reads stay live.
            caught = frozenset().union(*(before[offset] for offset in each.handlers))
            into = each.read | (out - each.written) | caught
            after[each.offset] = out
            if into != before[each.offset]:
                before[each.offset] = into
                settled = False
    return after


def _instructions(code: CodeType) -> list[_Instruction]:
    listing = list(dis.get_instructions(code))
    offsets = [instruction.offset for instruction in listing]
    following = dict(pairwise(offsets))
    covers = _exception_table(code)
    result = []
    for instruction in listing:
        read, written = _accesses(instruction)
        after = []
        if instruction.opname not in _NO_FALL_THROUGH and instruction.offset in following:
            after.append(following[instruction.offset])
        if instruction.opcode in _JUMPS:
            after.append(int(instruction.argval))
        handlers = tuple(target for start, end, target in covers if start <= instruction.offset < end)
        result.append(_Instruction(instruction.offset, read, written, tuple(after), handlers))
    return result


def _accesses(instruction: dis.Instruction) -> tuple[frozenset[str], frozenset[str]]:
    """The names that an instruction reads (before it writes them itself), and those that it writes."""
    read: set[str] = set()
    written: set[str] = set()
    names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
    for access, name in zip(_ACCESS.findall(instruction.opname), names, strict=False):
        if access != "LOAD":
            written.add(name)
        elif name not in written:
            read.add(name)
    return frozenset(read), frozenset(written)


def _exception_table(code: CodeType) -> list[tuple[int, int, int]]:
    """The (start, end, handler) offsets of a code object's exception table: CPython's format of varints."""
    numbers: list[int] = []
    value, fresh = 0, True
    for byte in code.co_exceptiontable:
        value = (0 if fresh else value << 6) | (byte & 0x3F)
        fresh = not byte & 0x40
        if fresh:
            numbers.append(value)
    # Each entry: start, length, handler (all in code units of two bytes), stack depth.
    entries = zip(numbers[0::4], numbers[1::4], numbers[2::4], strict=True)
    return [(2 * start, 2 * (start + length), 2 * target) for start, length, target in entries]
