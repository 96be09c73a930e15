"""The sites at which a hot path makes a named tuple by `unchecked(Class, (...))`, which knows no defaults.

`unchecked` is `tuple.__new__`: a missing field is no error there, but an IndexError in whoever reads the field.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple


class Site(NamedTuple):
    """A call of `unchecked`.

    Attributes:
        where: the file and the line.
        made: the name of the class.
        given: the number of fields that the call gives.
        fields: the names of the fields that the class has.
    """

    where: str
    made: str
    given: int
    fields: tuple[str, ...]


def fields_of(modules: Iterable[ast.Module]) -> dict[str, tuple[str, ...]]:
    """Return the fields of each class that is a NamedTuple, by the name of the class."""
    return {
        node.name: tuple(
            each.target.id
            for each in node.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        )
        for module in modules
        for node in ast.walk(module)
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "NamedTuple" for base in node.bases)
    }


def sites_of(sources: Mapping[str, str]) -> Iterator[Site]:
    """Yield each call of `unchecked` in some modules, by the names of their files.

    Raises:
        ValueError: the fields of a call can't be counted: they are not written as a tuple.
    """
    modules = {
        name: ast.parse(text) for name, text in sources.items() if "NamedTuple" in text or "unchecked(" in text
    }
    fields = fields_of(modules.values())
    for name, module in modules.items():
        for function in ast.walk(module):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            types = {each.arg: ast.unparse(each.annotation) for each in function.args.args if each.annotation}
            for node in ast.walk(function):
                match node:
                    case ast.Call(func=ast.Name(id="unchecked"), args=[ast.Name(id=made), ast.Tuple(elts=given)]):
                        # `*origin` gives the fields of the class that the parameter is annotated with.
                        starred = [ast.unparse(each.value) for each in given if isinstance(each, ast.Starred)]
                        number = len(given) - len(starred) + sum(len(fields[types[each]]) for each in starred)
                        yield Site(f"{name}:{node.lineno}", made, number, fields[made])
                    case ast.Call(func=ast.Name(id="unchecked")):
                        raise ValueError(f"{name}:{node.lineno}: write the fields as a tuple")
                    case _:
                        pass


def misfits(sites: Iterable[Site]) -> list[str]:
    """Return a message for each site that gives another number of fields than its class has."""
    return [
        f"{where}: {made} has {len(fields)} fields ({', '.join(fields)}), not {given}"
        for where, made, given, fields in sites
        if given != len(fields)
    ]
