"""A plugin of pytest that collects the tests once, and runs them against each error in a forked child.

It receives over a connection: (file, text with the error, tests, seconds).  It answers (whether a test failed, which
one), or None if the error can't be put into a running process, because an import has already executed that code.
"""

import gc
import os
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from signal import SIGKILL
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

CONNECTION = "INTERLOCK_MUTANTS"  # a descriptor
LOOK = 0.02  # seconds


class CanNot(Exception):
    """The error can't be put into a running process."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Judge the errors that the connection sends, instead of running all tests."""
    if CONNECTION not in os.environ:
        return None
    items = {item.nodeid: item for item in session.items}
    with Connection(int(os.environ[CONNECTION])) as asked:
        asked.send(sorted(items))
        while (job := asked.recv()) is not None:
            file, code, tests, seconds = job
            try:
                if not items.keys() >= set(tests):
                    raise CanNot
                functions = _changed(Path(file).resolve(), code)
            except CanNot:
                asked.send(None)
                continue
            asked.send(_judge(session, functions, [items[test] for test in tests], seconds))
    return True


def _judge(
    session: pytest.Session, functions: dict[FunctionType, CodeType], items: Sequence[pytest.Item], seconds: float
) -> tuple[bool, str]:
    """Run tests with other code in a forked child, until one fails."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()  # processes that the tests start end with it
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        failed = True
        try:
            for function, code in functions.items():
                function.__code__ = code
            failed = _run(session, items, writes)
        finally:
            os._exit(failed)
    os.close(writes)
    ended = time.monotonic() + seconds
    status = None
    while status is None and time.monotonic() < ended:
        done, said = os.waitpid(child, os.WNOHANG)
        if done:
            status = said
        else:
            time.sleep(LOOK)
    try:
        os.killpg(child, SIGKILL)
    except ProcessLookupError:
        pass
    if status is None:
        os.waitpid(child, 0)
    os.set_blocking(reads, False)  # a process that a test started may keep it open
    try:
        noticed = os.read(reads, 65536).decode()
    except BlockingIOError:
        noticed = ""
    os.close(reads)
    return status != 0, noticed


def _run(session: pytest.Session, items: Sequence[pytest.Item], writes: int) -> bool:
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            os.write(writes, item.nodeid.encode())
            return True
    return False


def _changed(file: Path, code: str) -> dict[FunctionType, CodeType]:
    """Return the functions of an imported module whose code differs, each with its new code.

    Raises:
        CanNot: what differs is no function, or its module is not imported.
    """
    if not any(_file_of(module) == file for module in list(sys.modules.values())):
        raise CanNot
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about the code with the error
        before, after = (compile(text, str(file), "exec") for text in (file.read_text(), code))
    changes = dict(_differences(before, after))
    found = {
        each: changes[each.__code__.co_qualname, each.__code__.co_firstlineno]
        for each in _live_functions()
        if (each.__code__.co_qualname, each.__code__.co_firstlineno) in changes
        and Path(each.__code__.co_filename).resolve() == file
    }
    if len(found) < len(changes) or not changes:
        raise CanNot
    return found


@cache
def _live_functions() -> list[FunctionType]:
    gc.unfreeze()  # the tests' conftest has frozen all objects
    functions = [each for each in gc.get_objects() if type(each) is FunctionType]
    gc.freeze()
    return functions


def _file_of(module: ModuleType) -> Path | None:
    name = getattr(module, "__file__", None)
    return Path(name).resolve() if isinstance(name, str) else None


def _differences(before: CodeType, after: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    """Find the functions that differ, in a module or a class body that do not."""
    old_parts, new_parts = _parts(before), _parts(after)
    if _plain(before) != _plain(after) or len(old_parts) != len(new_parts):
        raise CanNot
    for old, new in zip(old_parts, new_parts, strict=True):
        if old == new:
            continue
        if (old.co_qualname, old.co_firstlineno) != (new.co_qualname, new.co_firstlineno):
            raise CanNot
        if old.co_flags & 2:  # CO_NEWLOCALS: a function, no class body
            if old.co_freevars != new.co_freevars:
                raise CanNot
            yield (old.co_qualname, old.co_firstlineno), new
        else:
            yield from _differences(old, new)


def _parts(code: CodeType) -> list[CodeType]:
    return [each for each in code.co_consts if isinstance(each, CodeType)]


def _plain(code: CodeType) -> tuple[Any, ...]:
    constants = [repr(each) for each in code.co_consts if not isinstance(each, CodeType)]
    return code.co_code, code.co_names, constants
