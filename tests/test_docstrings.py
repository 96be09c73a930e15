"""Every public class, function and method has a docstring, from which the API reference is made."""

import inspect
from collections.abc import Iterator
from importlib import import_module

from tests.support.public_names import MODULES


def without_words(module: str) -> Iterator[str]:
    """Yield the public names of a module without a docstring; a method may inherit it from the one it overrides."""
    public = import_module(module)
    if not public.__doc__:
        yield module
    for name in public.__all__:
        found = getattr(public, name)
        if inspect.isclass(found) or inspect.isfunction(found):
            members = inspect.getmembers(found, lambda each: inspect.isfunction(each) or isinstance(each, property))
            shown = [(f".{key}", each) for key, each in members if inspect.isclass(found) and not key.startswith("_")]
            yield from (f"{module}.{name}{key}" for key, each in [("", found), *shown] if not inspect.getdoc(each))


def test_all_that_is_public_has_a_docstring() -> None:
    assert [name for module in MODULES for name in without_words(module)] == []
