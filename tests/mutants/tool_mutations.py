"""The errors that the operators of cosmic-ray can make in a module: https://cosmic-ray.readthedocs.io/."""

import ast
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.provider import OperatorProvider

NEVER_RAISED = "ZeroDivisionError"
SAME_FOR_CONSTANTS = ("Is_Eq", "IsNot_NotEq", "Eq_Is", "NotEq_IsNot")
Position = tuple[int, int]


class Mutation(NamedTuple):
    """One error.

    Attributes:
        file: where, from the root of the tree.
        line: where in the file.
        operator: what makes it; the name of a class of cosmic-ray.
        occurrence: the how-manieth place of that operator in the file, from 0.
    """

    file: str
    line: int
    operator: str
    occurrence: int


def _operators() -> dict[str, Any]:
    provider = OperatorProvider()
    kinds = {name: provider[name] for name in provider}
    return {name: kind() for name, kind in kinds.items() if not kind.arguments()}


OPERATORS = _operators()


def mutations_of(root: Path, file: str) -> list[Mutation]:
    """Return all errors that can be made in a file; some of them make no Python of it."""
    source = (root / file).read_text()
    tree = ast.parse(source)
    left_out = list(_left_out(tree))
    with_constants = [*left_out, *_compared_with_constants(tree)]
    counted: Counter[str] = Counter()
    found = []
    for node in ast_nodes(get_ast(source)):
        if node.type in ("name", "string", "newline", "fstring_string"):  # no operator changes these, and most are
            continue
        for name, operator in OPERATORS.items():
            for start, _ in operator.mutation_positions(node):
                spared = with_constants if name.endswith(SAME_FOR_CONSTANTS) else left_out
                if not any(begin <= start < end for begin, end in spared):
                    found.append(Mutation(file, start[0], name, counted[name]))
                counted[name] += 1
    return found


def mutated(source: str, mutation: Mutation) -> str | None:
    """Return a module with the error; None if that is no Python, the same program, or the tool fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", SyntaxWarning)  # as `is` before a literal, which Python itself tells
        try:
            code: str | None = mutate_code(source, OPERATORS[mutation.operator], mutation.occurrence)
            if code is None:
                return None
            # The operator names an exception that is not known, so that a NameError would tell on it.
            code = code.replace("CosmicRayTestingException", NEVER_RAISED)
            compile(code, mutation.file, "exec")
            return None if ast.dump(ast.parse(code)) == ast.dump(ast.parse(source)) else code
        except (SyntaxError, AttributeError):  # the latter for an `except` of several names with dots
            return None


def _left_out(tree: ast.AST) -> Iterator[tuple[Position, Position]]:
    """Find code that is no behaviour: types, overloads and protocols, `__slots__`, and log messages."""
    for node in ast.walk(tree):
        match node:
            case ast.arg(annotation=ast.expr() as hint) | ast.FunctionDef(returns=ast.expr() as hint):
                yield _extent(hint)
            case ast.AsyncFunctionDef(returns=ast.expr() as hint) | ast.AnnAssign(annotation=hint):
                yield _extent(hint)
        match node:
            case ast.FunctionDef(decorator_list=[ast.Name("overload"), *_]):
                yield _extent(node)
            case ast.AsyncFunctionDef(decorator_list=[ast.Name("overload"), *_]):
                yield _extent(node)
            case ast.ClassDef(bases=[*_, ast.Name("Protocol")]) | ast.If(test=ast.Name("TYPE_CHECKING")):
                yield _extent(node)
            case ast.AnnAssign(annotation=ast.Name("TypeAlias")) | ast.Assign(targets=[ast.Name("__slots__")]):
                yield _extent(node)
            case ast.Expr(ast.Call(ast.Attribute(value=ast.Name("log")))):
                yield _extent(node)


def _compared_with_constants(tree: ast.AST) -> Iterator[tuple[Position, Position]]:
    """Find comparisons with a constant or a member of an enumeration, for which `is` and `==` ask the same."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare(comparators=[ast.Name(name) | ast.Attribute(attr=name)]):
                if name.isupper():
                    yield _extent(node)


def _extent(node: ast.stmt | ast.expr) -> tuple[Position, Position]:
    decorators = getattr(node, "decorator_list", [])
    first: Any = decorators[0] if decorators else node
    start = (first.lineno, 0) if decorators else (node.lineno, node.col_offset)
    return start, (node.end_lineno or node.lineno, node.end_col_offset or 0)
