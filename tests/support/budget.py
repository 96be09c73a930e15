"""How large the project may be: `python -m tests.support.budget` prints goal, limit and size of each part.

Counted are statements, all but imports and docstrings, so that neither line breaks nor comments cost anything. What a
program has generated is counted apart: nobody reads it.
"""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "interlock"
GENERATED = "# Generated from"
"""Begins the first line of a generated file."""


class Part(NamedTuple):
    """A row of the table.

    Attributes:
        name: of the part.
        goal: what it is to have in the end; None if nobody has said.
        limit: what it may have today; the goal, where it still grows.  Lower it with each step; it is not raised.
        paths: its files and folders; those of `src` without a path of their own are "the rest".
        suffix: of the files that count; of other languages than Python, lines count.
    """

    name: str
    goal: int | None
    limit: int
    paths: tuple[str, ...]
    suffix: str = ".py"


def src(*names: str) -> tuple[str, ...]:
    """The paths of parts of the package."""
    return tuple(f"src/interlock/{name}" for name in names)


SHARED = src(
    "stores/_async",
    "stores/_sync",
    "stores/plain.py",
    "stores/__init__.py",
)
PRODUCTS = src(
    "client/_async/once.py",
    "client/_sync/once.py",
    "client/values.py",
    "client/_async/election.py",
    "client/_sync/election.py",
    "client/cancel.py",
    "client/_async/handing.py",
    "client/_sync/handing.py",
    "client/tokens.py",
    "cli/products.py",
)
PARTS = (
    Part("core", 930, 857, src("core")),
    Part("runtime", 380, 585, src("runtime")),
    Part("remote", 640, 819, src("remote")),
    Part("client", 1300, 1595, src("client", "locks")),
    Part("memory", 110, 69, src("stores/memory.py", "stores/memory")),
    Part("files", 1150, 1483, src("stores/files")),
    Part("files, lines of C", 450, 537, src("stores/files"), ".c"),
    Part("sqlite", 330, 411, src("stores/sqlite", "stores/sqlite.py")),
    Part("etcd", 540, 540, src("stores/etcd")),
    Part("bucket", 400, 290, src("stores/bucket")),
    Part("mysql", 400, 318, src("stores/mysql", "stores/mysql.py")),
    Part("postgresql", 490, 540, src("stores/postgresql")),
    Part("redis", 1350, 1632, src("stores/redis", "_redis")),
    Part("advisory", 650, 875, src("stores/advisory", "stores/advisory.py")),
    Part("django", 2500, 2499, src("django")),
    Part("products", 800, 391, PRODUCTS),
    Part("cli", 1000, 1163, src("cli")),
    Part("keylock", 470, 525, src("keylock")),
    Part("optimistic", 690, 753, src("optimistic")),
    Part("stores, shared", 450, 491, SHARED),
    Part("compat", None, 95, src("compat.py")),
    Part("the rest", 200, 229, ()),
    Part("src without testing", 12500, 16157, src("")),
    Part("src/testing", 3000, 3263, src("testing")),
    Part("proof", 2500, 3284, ("proof",)),
    Part("tests", 22000, 24748, ("tests",)),
    Part("bench", 1600, 1947, ("bench",)),
)

MODULES = Part("written modules", 170, 199, src(""))
"""Of `src` without testing, those that a row names too."""

ANY_GOAL, ANY_LIMIT = 6.0, 4.1
"""Per cent of all parameters in `src` without testing, those of lambdas too, whose type has `Any` in it."""

SAME_NAMES = {"Claim": 2}
"""Classes that several written modules have, and how many.  Django's model has the name that permissions, addresses
of the admin and routers of sites are written for; that of `core.claims` is what the whole house calls so."""

FOREIGN = {
    "_blake2": ("stores/files/slots.py",),
    "_creator": ("remote/urls.py",),
    "_free": ("optimistic/redis.py",),
    "_from_testcase": ("django/transactions.py",),
    "_get_running_loop": ("runtime/process.py",),
    "_read_timeout": ("stores/mysql/lines.py",),
}
"""Private names of other libraries, and the module that uses each; tests/test_pinned.py pins them."""


@cache
def tree(file: Path) -> ast.Module:
    """Read a module."""
    return ast.parse(file.read_text(encoding="utf-8"))


def generated(file: Path) -> bool:
    """Tell whether a program has made a file."""
    with file.open(encoding="utf-8") as opened:
        return opened.readline().startswith(GENERATED)


def files_of(part: Part) -> list[Path]:
    """Return the files of a part, generated ones too; testing is a part of its own."""
    if not part.paths:
        others = {file for one in PARTS if one.paths and one.paths[0] != "src/interlock/" for file in files_of(one)}
        return [file for file in written_and_generated() if file not in others]
    found = [file for path in part.paths for file in below(ROOT / path, part.suffix)]
    if part is not MODULES and not part.name.startswith("src"):  # a module that a row names counts there
        named = {ROOT / path for one in PARTS if one is not part for path in one.paths if path.endswith(".py")}
        found = [file for file in found if file not in named]
    return found if part.name == "src/testing" else [file for file in found if SRC / "testing" not in file.parents]


def written_and_generated() -> list[Path]:
    """Return all modules of `src` without testing."""
    return files_of(MODULES)


def below(path: Path, suffix: str) -> Iterable[Path]:
    """Return a file, or the files in a folder with a suffix; nothing if there is neither."""
    return [path] if path.is_file() else sorted(path.rglob(f"*{suffix}"))


def written() -> list[Path]:
    """Return the modules of `src` without testing that people write."""
    return [file for file in written_and_generated() if not generated(file)]


def statements(file: Path) -> int:
    """Count the statements of a module, or the lines of a file in another language."""
    if file.suffix != ".py":
        return len(file.read_text(encoding="utf-8").splitlines())
    return sum(isinstance(node, ast.stmt) and counts(node) for node in ast.walk(tree(file)))


def counts(node: ast.stmt) -> bool:
    """Tell whether a statement is none of an import and a docstring, be it of an attribute."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return not isinstance(node.value.value, str)
    return not isinstance(node, ast.Import | ast.ImportFrom)


class Size(NamedTuple):
    """What a part has.

    Attributes:
        written: statements that people write.
        generated: statements that a program has made of them.
    """

    written: int
    generated: int


@cache
def size(part: Part) -> Size:
    """Count a part."""
    counted = [(statements(file), generated(file)) for file in files_of(part)]
    return Size(sum(n for n, made in counted if not made), sum(n for n, made in counted if made))


def same_names() -> dict[str, int]:
    """Return the names of classes that several written modules have, and how many."""
    classes = Counter(
        name
        for file in written()
        for name in {node.name for node in ast.walk(tree(file)) if isinstance(node, ast.ClassDef)}
    )
    return {name: count for name, count in sorted(classes.items()) if count > 1}


def any_percent() -> float:
    """Return how many per cent of the parameters have `Any` in their type."""
    found = [
        any(isinstance(part, ast.Name) and part.id == "Any" for part in ast.walk(node))
        for file in written()
        for node in ast.walk(tree(file))
        if isinstance(node, ast.arg)
    ]
    return 100 * sum(found) / len(found)


def foreign_names() -> dict[str, tuple[str, ...]]:
    """Return private names that our modules use but none of them defines, and who uses each.

    A name that we have, too, can't be told from theirs: `connection._loop` of redis-py is not seen.
    """
    used: dict[str, set[str]] = {}
    ours = {name for file in written_and_generated() for name in defined(tree(file))}
    for file in written():
        for name in private_names(tree(file)):
            used.setdefault(name, set()).add(str(file.relative_to(SRC)))
    return {
        name: tuple(sorted(modules))
        for name, modules in sorted(used.items())
        if name not in ours | PUBLIC and not name.startswith(OURS)
    }


OURS = "_interlock_"
"""Begins names that we put on objects of others."""
PUBLIC = {
    *("_replace", "_asdict", "_fields", "_make"),  # named tuples
    *("_exit", "_getframe", "_is_gil_enabled"),  # os and sys
    *("_meta", "_base_manager"),  # Django's models
    "_mapping",  # SQLAlchemy's rows
}
"""Documented all the same."""


def defined(module: ast.Module) -> Iterator[str]:
    """Yield the names that a module gives to something: functions, classes, variables, attributes, slots, modules."""
    for node in ast.walk(module):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case (
                ast.Name(id=name, ctx=ast.Store())
                | ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store())
            ):
                yield name
            case ast.Assign(targets=[ast.Name(id="__slots__")], value=value):
                yield from (str(part.value) for part in ast.walk(value) if isinstance(part, ast.Constant))
            case ast.ImportFrom(module=str(path)) if path.partition(".")[0] == "interlock":
                yield from (name for alias in node.names for name in (alias.name, *path.split(".")))
            case _:
                pass


def private_names(module: ast.Module) -> Iterator[str]:
    """Yield the private attributes that a module asks of something, and the private modules that it imports."""
    for node in ast.walk(module):
        names: Iterable[str] = ()
        match node:
            case ast.Attribute(attr=name):
                names = [name]
            case ast.Call(
                func=ast.Name(id="getattr" | "setattr" | "hasattr"), args=[_, ast.Constant(value=str(name)), *_]
            ):
                names = [name]
            case ast.ImportFrom(module=str(path)):
                names = [*path.split("."), *(alias.name for alias in node.names)]
            case ast.Import():
                names = [name for alias in node.names for name in alias.name.split(".")]
        yield from (name for name in names if name.startswith("_") and not name.endswith("__"))


def table() -> list[tuple[str, int | None, int, int, int]]:
    """Return the rows: name, goal, limit, written, generated."""
    rows = [(part.name, part.goal, part.limit, *size(part)) for part in PARTS]
    made = len(written_and_generated()) - len(written())
    return [*rows, (MODULES.name, MODULES.goal, MODULES.limit, len(written()), made)]


def main() -> None:
    """Print the table."""
    print(f"{'':24}{'goal':>8}{'limit':>8}{'now':>8}{'generated':>11}")
    for name, goal, limit, now, made in table():
        print(f"{name:24}{goal or '-':>8}{limit:>8}{now:>8}{made or '':>11}")
    print(f"{'% of parameters with Any':24}{ANY_GOAL:>8}{ANY_LIMIT:>8}{any_percent():>8.1f}")
    print(f"{'names of several classes':24}{0:>8}{len(SAME_NAMES):>8}{len(same_names()):>8}")
    print(f"{'private names of others':24}{'':>8}{len(FOREIGN):>8}{len(foreign_names()):>8}")


if __name__ == "__main__":
    main()
