"""The present public API, one name in each line: `python -m tests.support.public_names > tests/public_names.txt`."""

import inspect
from collections.abc import Iterator
from importlib import import_module
from types import FunctionType

MODULES = (
    "interlock",
    "interlock.etcd",
    "interlock.redis",
    "interlock.optimistic",
    "interlock.otel",
    "interlock.store_api",
)


def parameters(function: object) -> str:
    """Return the names of the parameters of a function, like its signature without types."""
    found = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    plain = [each.replace(annotation=inspect.Parameter.empty) for each in found]
    shown = [
        each if each.default is inspect.Parameter.empty or isinstance(each.default, (str, int, float, type(None)))
        else each.replace(default=Ellipsis)
        for each in plain
    ]  # fmt: skip
    return str(inspect.Signature(shown))


def members(owner: type) -> Iterator[str]:
    """Yield the public members of a class, including those inherited from our classes."""
    ours = {name for each in owner.__mro__ if each.__module__.startswith("interlock.") for name in vars(each)}
    for name in sorted(each for each in ours if not each.startswith("_")):
        found = inspect.getattr_static(owner, name)
        if isinstance(found, (staticmethod, classmethod)):
            found = found.__func__
        yield f"{name}{parameters(found)}" if isinstance(found, FunctionType) else name


def surface() -> list[str]:
    """Return the names that programs may use, with the parameters of functions and methods."""
    lines = []
    for where in MODULES:
        module = import_module(where)
        for name in sorted(module.__all__):
            found = getattr(module, name)
            if inspect.isclass(found):
                lines.append(f"{where}.{name}")
                lines += [f"{where}.{name}.{member}" for member in members(found)]
            else:
                lines.append(f"{where}.{name}{parameters(found) if isinstance(found, FunctionType) else ''}")
    return lines


if __name__ == "__main__":
    print("\n".join(surface()))
