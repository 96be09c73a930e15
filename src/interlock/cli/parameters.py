"""The options and arguments that several commands have."""

from collections.abc import Callable
from importlib import import_module

import click

from interlock.cli.run_words import seconds_of


class Duration(click.ParamType):  # type: ignore[type-arg] # click before 8.4 can't subscript it
    """Seconds, as 30, 0.5, 30s, 10m, 2h or 1d."""

    name = "sec"  # in capitals where an option is explained

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return a text in seconds."""
        text = str(value).strip()
        try:
            return seconds_of(text)
        except ValueError:
            self.fail(f"{text!r} is not a duration. Give one such as 30, 30s, 10m, 2h or 1d.", param, ctx)


def completed(what: str) -> Callable[..., object]:
    """Return a completion function of `completion`, which loads when a shell calls it."""
    return lambda *asked: getattr(import_module("interlock.cli.completion"), what)(*asked)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
namespace_option = click.option(
    "--namespace",
    metavar="TEXT",
    default="",
    help="Namespace of the locks.",
    shell_complete=completed("namespaces"),
)
store_option = click.option(
    "--store", metavar="URL", help="URL of the store. Default: $INTERLOCK_URL, else a folder of this user."
)
name_argument = click.argument("name", shell_complete=completed("names"))
