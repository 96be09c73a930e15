"""The public names of the package."""

import subprocess
import sys
from pathlib import Path

import interlock
from tests.support.public_names import surface


def test_all_public_names_are_there_and_nothing_else_is_listed() -> None:
    assert dir(interlock) == sorted([*interlock.__all__, "__version__"])
    for name in interlock.__all__:
        assert getattr(interlock, name).__module__.startswith("interlock.")
    assert not hasattr(interlock, "SomethingElse")


def loaded(program: str) -> set[str]:
    """Return the modules that a program has loaded and that Python itself had not."""
    program = f"import sys; before = {{*sys.modules}}\n{program}\nprint(*{{*sys.modules}} - before)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())


def test_a_program_that_does_not_lock_loads_next_to_nothing() -> None:
    assert loaded("import interlock") == {"interlock", "interlock.runtime", "interlock.runtime.loading"}


def test_a_program_of_threads_loads_no_asyncio() -> None:
    found = loaded('import interlock; interlock.connect("memory://").lock("a").acquire().release()')
    assert "interlock.stores.memory" in found
    slow = {"asyncio", "dataclasses", "importlib.metadata", "inspect", "json", "logging", "pathlib", "socket", "ssl"}
    assert found & slow == set()


def test_a_public_name_is_looked_up_once() -> None:
    program = """
import interlock
assert "LockTimeout" not in vars(interlock)
assert interlock.LockTimeout is vars(interlock)["LockTimeout"]
"""
    assert "interlock.core.errors" in loaded(program)


def test_a_lock_shows_what_it_is_and_where_without_passwords() -> None:
    locks = interlock.connect("memory://shelf", namespace="shop")
    assert repr(locks) == "<Locks on memory://shelf, namespace='shop'>"
    assert repr(locks.lock("a")) == "<Lock 'a' (exclusive) on memory://shelf>"
    assert repr(locks.rwlock("a").read()) == "<Lock 'a' (reader) on memory://shelf>"
    assert repr(locks.semaphore("a", 3, units=2)) == "<Lock 'a' (semaphore 2/3) on memory://shelf>"
    assert repr(locks.all("a", "b")) == "<AllLock 'a, b' (exclusive, exclusive) on memory://shelf>"
    assert "secret" not in repr(interlock.connect("redis://user:secret@127.0.0.1:1").lock("a"))


def test_the_public_surface_is_the_one_that_was_published() -> None:
    """Before you change the list, read "What may change, and when" in CONTRIBUTING.md."""
    published = (Path(__file__).parent / "public_names.txt").read_text().splitlines()
    now = surface()
    assert [line for line in published if line not in now] == []
    assert [line for line in now if line not in published] == []
