"""Every public class, function and method says what it does; the reference of the API is made of that."""

import ast
import re
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


def parameters(node: ast.AST) -> set[str] | None:
    """Return the names of the parameters of a function, or of what makes an instance; None if a base class says."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        args = node.args
        found = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
        return {each.arg for each in found if each is not None}
    makers = [each for each in getattr(node, "body", []) if getattr(each, "name", "") in ("__init__", "__new__")]
    fields = {each.target.id for each in getattr(node, "body", []) if isinstance(each, ast.AnnAssign)}
    return {name for each in makers for name in parameters(each) or ()} | fields if makers or fields else None


def told_arguments(docstring: str) -> list[str]:
    """Return the names in the section `Args:`; a line may have several."""
    section = re.search(r"^Args:\n((?:    .*\n?|\n)+)", docstring, re.MULTILINE)
    lines = re.findall(r"^    ([*\w, ]+):", section[1], re.MULTILINE) if section else []
    return [name.strip(" *") for line in lines for name in line.split(",")]


def test_arguments_that_a_docstring_tells_are_parameters() -> None:
    found, looked = [], 0
    for path in [each for folder in ("src", "proof", "bench", "tests") for each in (ROOT / folder).rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            names = parameters(node) if isinstance(node, DEFINITIONS) else None
            if names is None or not isinstance(node, DEFINITIONS):
                continue
            told = told_arguments(ast.get_docstring(node) or "")
            looked += len(told)
            found += [f"{path.relative_to(ROOT)}: {node.name}: {name}" for name in told if name not in names]
    assert looked > 300
    assert found == []
