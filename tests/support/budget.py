"""The sizes of the project: `python -m tests.support.budget` prints the goal and the size of each part.

The table is a report. Only the package as a whole has a limit, of 5 % more than the last size: nobody has to ask for
a new module, or for a part that grows.

It counts statements without imports and docstrings, so that line breaks and comments cost nothing. Generated files
are counted separately, since nobody reads them.
"""

import ast
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "interlock"
GENERATED = "# Generated from"
"""The beginning of the first line of a generated file."""
SLACK = 1.05
WHOLE = "src without testing"


class Part(NamedTuple):
    """A row of the table.

    Attributes:
        name: the name of the part.
        goal: the size to reach in the end; None if not decided.
        last: the size when the table was last written.
        paths: its files and folders; files of `src` in no row are "the rest".
        suffix: the suffix of its files; for other languages than Python, lines are counted.
    """

    name: str
    goal: int | None
    last: int
    paths: tuple[str, ...]
    suffix: str = ".py"

    @property
    def limit(self) -> float:
        """The largest size that the tests accept; infinite for all parts but the whole package."""
        return self.last * SLACK if self.name == WHOLE else math.inf


def src(*names: str) -> tuple[str, ...]:
    """The paths of modules and folders of the package."""
    return tuple(f"src/interlock/{name}" for name in names)


PARTS = (
    Part("core", 930, 886, src("core")),
    Part("runtime", 380, 822, src("runtime")),
    Part("drivers", 150, 80, src("drivers")),
    Part("storekit", 950, 975, src("storekit")),
    Part("client", 1300, 1146, src("client")),
    Part("patterns", 400, 282, src("patterns")),
    Part("api", 400, 229, src("api")),
    Part("memory", 110, 61, src("stores/memory.py", "stores/memory")),
    Part("files", 1150, 1359, src("stores/files")),
    Part(
        "windows",
        560,
        462,
        src(
            "stores/files/_windows.py",
            "stores/files/windows_paths.py",
            "stores/files/loopback.py",
            "stores/files/_async/loopback_waiter.py",
            "runtime/_windows_clock.py",
        ),
    ),
    Part("files, lines of C", 450, 448, src("stores/files"), ".c"),
    Part("sqlite", 330, 326, src("stores/sqlite", "stores/sqlite.py")),
    Part("etcd", 540, 531, src("stores/etcd")),
    Part("bucket", 400, 295, src("stores/bucket")),
    Part("dynamodb", 280, 277, src("stores/dynamodb")),
    Part("share", 300, 338, src("stores/share")),
    Part("mysql", 400, 294, src("stores/mysql", "stores/mysql.py")),
    Part("postgresql", 490, 483, src("stores/postgresql")),
    Part("redis", 1350, 1256, src("stores/redis", "_redis")),
    Part("advisory", 650, 645, src("stores/advisory", "stores/advisory.py")),
    Part("django", 2500, 2476, src("django")),
    Part("cli", 1000, 994, src("cli")),
    Part("keylock", 470, 457, src("keylock")),
    Part("optimistic", 690, 651, src("optimistic")),
    Part("the rest", 200, 198, ()),
    Part(WHOLE, 13685, 15944, src("")),
    Part("src/testing", 3000, 3435, src("testing")),
    Part("model_checker", 2500, 2630, ("model_checker",)),
    Part("tests", 22000, 24211, ("tests",)),
    Part("bench", 1600, 1596, ("bench",)),
)

LATER, WITHOUT_LATER = ("patterns", "etcd", "bucket", "dynamodb"), 12500
"""The parts of later issues, which come on top of the budget, and what all others may have together in the end."""

MODULES = Part("written modules", 170, 181, src(""))
"""All of `src` without testing, including the files in other rows."""

ANY_LIMIT = 22.0
"""The most annotations with `Any`, and casts, for 1,000 statements."""

SAME_NAMES = {"Claim": 2}
"""Names of classes that several written modules have, and how many.  Permissions, admin URLs and routers of sites
contain the name of Django's model `Claim`; the class of `core.claims` has the name that all modules use."""

FOREIGN = {
    "_blake2": ("patterns/payload.py", "stores/files/slots.py"),
    "_creator": ("drivers/urls.py",),
    "_free": ("optimistic/redis.py",),
    "_from_testcase": ("django/transactions.py",),
    "_get_running_loop": ("runtime/process.py",),
    "_read_timeout": ("stores/mysql/lines.py",),
    "_update": ("django/guarded/saving.py",),
}
"""Private names of other libraries, and the module that uses each; tests/test_foreign_private_names.py pins them."""


@cache
def tree(file: Path) -> ast.Module:
    """Read a module."""
    return ast.parse(file.read_text(encoding="utf-8"))


def generated(file: Path) -> bool:
    """Return True if a file is generated."""
    with file.open(encoding="utf-8") as opened:
        return opened.readline().startswith(GENERATED)


def files_of(part: Part) -> list[Path]:
    """Return the files of a part, including generated ones; testing is a separate part."""
    if not part.paths:
        others = {file for one in PARTS if one.paths and one.paths[0] != "src/interlock/" for file in files_of(one)}
        return [file for file in written_and_generated() if file not in others]
    found = [file for path in part.paths for file in below(ROOT / path, part.suffix)]
    if part is not MODULES and not part.name.startswith("src"):  # a module with its own row counts there
        named = {ROOT / path for one in PARTS if one is not part for path in one.paths if path.endswith(".py")}
        found = [file for file in found if file not in named]
    return found if part.name == "src/testing" else [file for file in found if SRC / "testing" not in file.parents]


def written_and_generated() -> list[Path]:
    """Return all modules of `src` without testing."""
    return files_of(MODULES)


def below(path: Path, suffix: str) -> Iterable[Path]:
    """Return a file, or the files with a suffix in a folder; nothing if the path does not exist."""
    return [path] if path.is_file() else sorted(path.rglob(f"*{suffix}"))


def written() -> list[Path]:
    """Return the modules of `src` without testing that people write."""
    return [file for file in written_and_generated() if not generated(file)]


def modules() -> list[Path]:
    """Return the written modules that have a statement: an empty `__init__.py` only makes a folder a package."""
    return [file for file in written() if statements(file)]


def statements(file: Path) -> int:
    """Count the statements of a module, or the lines of a file in another language."""
    if file.suffix != ".py":
        return len(file.read_text(encoding="utf-8").splitlines())
    return sum(isinstance(node, ast.stmt) and counts(node) for node in ast.walk(tree(file)))


def counts(node: ast.stmt) -> bool:
    """Return True unless a statement is an import or a docstring (also of an attribute)."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return not isinstance(node.value.value, str)
    return not isinstance(node, ast.Import | ast.ImportFrom)


class Size(NamedTuple):
    """The size of a part.

    Attributes:
        written: the number of statements that people write.
        generated: the number of generated statements.
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


def per_thousand(count: Callable[[ast.AST], int]) -> float:
    """Return a count over all nodes of the written modules, for 1,000 statements."""
    counted = sum(count(node) for file in written() for node in ast.walk(tree(file)))
    return 1000 * counted / sum(statements(file) for file in written())


def untyped(node: ast.AST) -> int:
    """Return 1 for an annotation or an alias of a type that contains `Any`, and for a cast."""
    match node:
        case ast.arg(annotation=found) | ast.FunctionDef(returns=found) | ast.AsyncFunctionDef(returns=found):
            pass
        case ast.AnnAssign(annotation=ast.Name(id="TypeAlias"), value=found) | ast.AnnAssign(annotation=found):
            pass
        case ast.Call(func=ast.Name(id="cast")):
            return 1
        case _:
            return 0
    return int(found is not None and re.search(r"\bAny\b", ast.unparse(found)) is not None)


def is_cast(node: ast.AST) -> int:
    """Return 1 for a cast."""
    return int(isinstance(node, ast.Call) and untyped(node))


def private_access(node: ast.AST) -> int:
    """Return 1 for a private attribute of another object than `self` or `cls`."""
    match node:
        case ast.Attribute(value=ast.Name(id="self" | "cls") | ast.Call(func=ast.Name(id="super"))):
            return 0
        case ast.Attribute(attr=name):
            return int(name.startswith("_") and not name.endswith("__") and name not in PUBLIC)
    return 0


def foreign_names() -> dict[str, tuple[str, ...]]:
    """Return private names that our modules use but none of them defines, and the modules that use each.

    A private name of a library that one of our modules defines, too, is not found: `connection._loop` of redis-py.
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
"""The beginning of names of attributes that we set on objects of other libraries."""
PUBLIC = {
    *("_replace", "_asdict", "_fields", "_make"),  # named tuples
    *("_exit", "_getframe", "_is_gil_enabled"),  # os and sys
    *("_meta", "_base_manager"),  # Django's models
    "_mapping",  # SQLAlchemy's rows
}
"""Private names that are documented."""


def defined(module: ast.Module) -> Iterator[str]:
    """Yield the names that a module defines: functions, classes, variables, attributes, slots, modules."""
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
    """Yield the private attributes that a module accesses, and the private modules that it imports."""
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
    """Return the rows: name, goal, last size, written, generated."""
    rows = [(part.name, part.goal, part.last, *size(part)) for part in PARTS]
    made = sum(generated(file) for file in written_and_generated())
    ((whole, now),) = [(last, now) for name, _, last, now, _ in rows if name == WHOLE]
    lasts, later = zip(*[(last, now) for name, _, last, now, _ in rows if name in LATER], strict=True)
    rows.append(("src without later issues", WITHOUT_LATER, whole - sum(lasts), now - sum(later), 0))
    return [*rows, (MODULES.name, MODULES.goal, MODULES.last, len(modules()), made)]


def main() -> None:
    """Print the table."""
    print(f"{'':24}{'goal':>8}{'last':>8}{'now':>8}{'generated':>11}")
    for name, goal, last, now, made in table():
        print(f"{name:24}{goal or '-':>8}{last:>8}{now:>8}{made or '':>11}")
    print("for 1,000 statements:")
    for title, aim, count in (
        ("Any and casts", 15, untyped),
        ("casts", 1, is_cast),
        ("private attributes used", 10, private_access),
    ):
        print(f"{title:24}{aim:>8}{'':>8}{per_thousand(count):>8.1f}")
    print(f"{'names of several classes':24}{0:>8}{len(SAME_NAMES):>8}{len(same_names()):>8}")
    for each, number in sorted(same_names().items() - SAME_NAMES.items()):
        print(f"  {each}: {number} classes")
    print(f"{'private names of others':24}{'':>8}{len(FOREIGN):>8}{len(foreign_names()):>8}")


if __name__ == "__main__":
    main()
