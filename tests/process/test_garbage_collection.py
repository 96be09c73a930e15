"""Grants that are garbage-collected while they are held, and ids, in separate processes."""

import subprocess
import sys

import pytest

from interlock.runtime.process import WeakRegistry
from interlock.runtime.waiters import Waiters

ACQUIRE = """
import gc, os, sys, warnings
import interlock
locks = interlock.connect("memory://")
def take(name):
    locks.lock(name).acquire()  # here
"""


def told(program: str, *options: str) -> str:
    """Run a program that must succeed, and return its stderr."""
    done = subprocess.run(
        [sys.executable, *options, "-c", ACQUIRE + program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_tracemalloc_knows_where_it_was_acquired(tmp_path: object) -> None:
    said = told("take('book')", "-X", "tracemalloc=5", "-W", "always")
    assert "ResourceWarning: Lock 'book' was never released" in said
    assert "Object allocated at" in said
    assert 'File "<string>", lineno 6' in said


def test_without_being_asked_it_is_one_line_of_the_log() -> None:
    (line,) = told("take('book')").splitlines()
    assert line.startswith("Lock 'book' was never released")


@pytest.mark.parametrize("where", ["grant", "global grant\ngrant", "sys.grant", "grant = interlock.grant"])
def test_what_is_held_when_the_program_ends_makes_no_noise(where: str) -> None:
    program = f"""
def main():
    {where.splitlines()[0] if "global" in where else "pass"}
    {where.splitlines()[-1]} = locks.lock("book").acquire()
main()
cycle = [locks.lock("shelf").acquire()]
cycle.append(cycle)
"""
    said = told(program, "-X", "dev")
    assert "Traceback" not in said
    assert "Exception ignored" not in said


def test_a_forked_child_does_not_warn_of_its_parents_grants() -> None:
    program = """
grant = locks.lock("book").acquire()
child = os.fork()
if child == 0:
    del grant
    gc.collect()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert grant.release() is True
"""
    assert "ResourceWarning" not in told(program, "-W", "always::ResourceWarning")


def test_a_cloned_process_makes_other_ids() -> None:
    program = """
import ctypes
from interlock.runtime.process import fresh_id
before = fresh_id()
reader, writer = os.pipe()
child = ctypes.PyDLL(None).fork()  # Python is not told, as when a machine is cloned
if child == 0:
    os.write(writer, " ".join(fresh_id() for _ in range(3)).encode())
    os._exit(0)
ids = {fresh_id() for _ in range(3)}
os.waitpid(child, 0)
cloned = set(os.read(reader, 1000).decode().split())
assert len(ids | cloned | {before}) == 7, (ids, cloned)
assert all(id.isalnum() and len(id) <= 36 for id in ids)
"""
    told(program)


def test_a_registry_keeps_nothing_of_what_has_died() -> None:
    registry: WeakRegistry[Waiters] = WeakRegistry()
    lives = Waiters()
    registry.add(lives)
    registry.add(Waiters())
    assert ([*registry], len(registry._found)) == ([lives], 1)
