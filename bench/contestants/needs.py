"""The requirements of contestants; each function returns a check that raises `Unavailable` if it is missing."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from bench.model import Unavailable


def module(name: str, attribute: str = "", install: str = "") -> Callable[[], None]:
    """Require a Python module.

    Args:
        name: the module.
        attribute: an attribute that it must have; the namespace package of an empty folder has none.
        install: the argument of `pip install`, if it is not the module's name.
    """

    def check() -> None:
        try:
            found = importlib.import_module(name)
        except ImportError as error:
            raise Unavailable(f"no module {name} ({error}); pip install {install or name}") from error
        if attribute and not hasattr(found, attribute):
            raise Unavailable(f"module {name} has no {attribute}; pip install {install or name}")

    return check


def interlock() -> None:
    """Require interlock itself."""
    module("interlock", "connect", "-e .")()


def redis() -> None:
    """Require redis-py."""
    module("redis", "Redis")()


def interlock_redis() -> None:
    """Require interlock with its store on Redis."""
    module("interlock.stores.redis", "RedisStore", "-e .[redis]")()
    redis()
