"""Every public class, function and method says what it does; the reference of the API is made of that."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "interlock"
DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
OF_ITS_FIRST = {"overload", "setter", "register"}  # decorators of a definition whose first one has the words
DJANGO_KNOWS = {"Meta", "Media"}


def decorators(node: ast.AST) -> set[str]:
    """Return the last words of its decorators."""
    found = getattr(node, "decorator_list", [])
    plain = [each.func if isinstance(each, ast.Call) else each for each in found]
    return {each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in plain}


def without_words(node: ast.AST, within: str) -> Iterator[str]:
    """Yield the public definitions in `node` that have no docstring."""
    for each in ast.iter_child_nodes(node):
        if not isinstance(each, DEFINITIONS) or each.name.startswith("_") or each.name in DJANGO_KNOWS:
            continue
        name = f"{within}:{each.name}" if within.endswith(".py") else f"{within}.{each.name}"
        if ast.get_docstring(each) is None and not decorators(each) & OF_ITS_FIRST:
            yield name
        if isinstance(each, ast.ClassDef):
            yield from without_words(each, name)


def test_every_public_definition_has_a_docstring() -> None:
    modules = [path for path in PACKAGE.rglob("*.py") if "migrations" not in path.parts]
    assert len(modules) > 100
    missing = []
    for path in modules:
        tree = ast.parse(path.read_text())
        where = str(path.relative_to(ROOT / "src"))
        if ast.get_docstring(tree) is None:
            missing.append(where)
        missing += without_words(tree, where)
    tests = [each for each in missing if ":test_" in each]  # a test's name is its sentence
    assert sorted(set(missing) - set(tests)) == []
