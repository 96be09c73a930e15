"""The code under check: the package's, or a copy of it with one change in its text.

`core/_async/acquire.py` runs as a generator: each `await` in its text becomes a `yield from`, with no other change.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from interlock.core import line
from interlock.core._async import acquire as claiming
from interlock.stores.files import plan

PLAIN = ("fresh_id", "subscribe")  # plain functions in production; here requests to the world


class Production(NamedTuple):
    """The decisions of a step, its writes, and the protocol of a caller."""

    line: Any
    plan: Any
    acquire: Callable[..., Any]


MODULES: dict[str, ModuleType] = {"line": line, "plan": plan, "claiming": claiming}


class _AsGenerator(ast.NodeTransformer):
    """Makes coroutine functions generator functions."""

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        self.generic_visit(node)
        fields: Any = {name: getattr(node, name, None) for name in (*node._fields, *node._attributes)}
        return ast.FunctionDef(**fields)

    def visit_Await(self, node: ast.Await) -> ast.AST:
        self.generic_visit(node)
        return ast.copy_location(ast.YieldFrom(node.value), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr in PLAIN:
            return ast.copy_location(ast.YieldFrom(node), node)
        return node


def executed(original: ModuleType, text: str) -> ModuleType:
    """Execute a text as a module."""
    module = ModuleType(original.__name__)
    tree = ast.fix_missing_locations(_AsGenerator().visit(ast.parse(text)))
    exec(compile(tree, original.__file__ or module.__name__, "exec"), module.__dict__)
    return module


PRODUCTION = Production(line, plan, executed(claiming, inspect.getsource(claiming)).acquire)


def changed(module: str, old: str, new: str) -> Production:
    """Return the production code with one change in the text of one module.

    Args:
        module: line, plan or claiming.
        old: a piece of its text, which must occur exactly once.
        new: its replacement.

    Raises:
        ValueError: the piece does not occur exactly once.
    """
    text = inspect.getsource(MODULES[module])
    if text.count(old) != 1:
        raise ValueError(f"{old!r} occurs {text.count(old)} times in {MODULES[module].__name__}, not once")
    fresh = executed(MODULES[module], text.replace(old, new))
    for name, value in vars(MODULES[module]).items():
        if isinstance(value, type):  # the types stay the same in both modules
            setattr(fresh, name, value)
    if module == "claiming":
        return PRODUCTION._replace(acquire=fresh.acquire)
    return PRODUCTION._replace(line=fresh) if module == "line" else PRODUCTION._replace(plan=fresh)
