"""Every public class, function and method says what it does; the reference of the API is made of that."""

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from tests.support.surface import MODULES

PACKAGE = Path(__file__).parent.parent / "src" / "interlock"


def without_words(module: str) -> Iterator[str]:
    """Yield the public names of a module that say nothing; a method may leave it to the one that it overrides."""
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


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the names of the parameters of a function."""
    args = node.args
    found = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
    return {each.arg for each in found if each is not None}


def told_arguments(docstring: str) -> list[str]:
    """Return the names in the section `Args:`; a line may have several."""
    section = re.search(r"^Args:\n((?:    .*\n?|\n)+)", docstring, re.MULTILINE)
    lines = re.findall(r"^    ([*\w, ]+):", section[1], re.MULTILINE) if section else []
    return [name.strip(" *") for line in lines for name in line.split(",")]


def test_arguments_that_a_docstring_tells_are_parameters() -> None:
    found = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.args.kwarg is None:
                told = told_arguments(ast.get_docstring(node) or "")
                found += [f"{path.name}: {node.name}: {name}" for name in told if name not in parameters(node)]
    assert found == []
