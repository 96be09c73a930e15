"""Both colours have the same public names, and they import no client library."""

import inspect
import subprocess
import sys
from types import FunctionType
from typing import Any

import pytest

import interlock.redis

PAIRS = [
    (getattr(interlock.redis, name), getattr(interlock.redis, f"Async{name}"))
    for name in interlock.redis.__all__
    if not name.startswith("Async")
]


def public(kind: type) -> set[str]:
    """Return the public names of a class."""
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0].__name__)
def test_both_colours_have_the_same_names_and_arguments(pair: tuple[Any, Any]) -> None:
    one, other = pair
    assert public(one) == public(other)
    for name in [*public(one), "__init__"]:
        mine, theirs = inspect.getattr_static(one, name), inspect.getattr_static(other, name)
        if isinstance(mine, FunctionType):
            given = [each for each in inspect.signature(mine).parameters.values() if each.name != "sleep"]
            taken = [each for each in inspect.signature(theirs).parameters.values() if each.name != "sleep"]
            assert [(each.name, repr(each.default)) for each in given] == [
                (each.name, repr(each.default)) for each in taken
            ], name
        else:
            assert isinstance(theirs, property), name


def test_no_client_library_is_imported() -> None:
    code = "import interlock.redis, sys; assert not {'redis', 'valkey', 'hiredis'} & set(sys.modules), sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
