"""The options that several commands have."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import click


def completed(what: str) -> Callable[..., Any]:
    """Return what completes a word by the function `what` of `complete`, which is loaded when a shell asks."""
    return lambda *asked: getattr(import_module("interlock.cli.complete"), what)(*asked)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
namespace_option = click.option(
    "--namespace", metavar="TEXT", default="", help="Whose locks they are.", shell_complete=completed("namespaces")
)
store_option = click.option(
    "--store", metavar="URL", help="Where the locks are. Default: $INTERLOCK_URL, else /tmp/interlock-UID."
)
name_argument = click.argument("name", shell_complete=completed("names"))
