"""The manual page of the command, made from its help: `./dev man`."""

from collections.abc import Iterator

import click

import interlock
from interlock.cli.lazy_group import COMMANDS, HEAD, group

ENVIRONMENT = (
    ("INTERLOCK_URL", "The URL of the store, unless --store is given: redis://host, file:///folder and so on."),
    ("INTERLOCK_NAME, INTERLOCK_FENCE, INTERLOCK_HELD", "Set by run for its command: the lock, its fencing token, "
     "and the claims of this run and of those around it."),
    ("SHELL", "The shell that runs the COMMAND of -c."),
)  # fmt: skip
STATUSES = (
    ("0", "Success."),
    ("1", "The lock could not be acquired (run, hold) or is no longer held (renew, release), no claim was removed "
     "(evict), or the output has no reader."),
    ("64", "Usage error."),
    ("69", "The command to run was not found or is not executable; or interlock[cli] is not installed."),
    ("70", "The lock was lost (run), a check failed (doctor), or there is an error in interlock itself."),
    ("74", "The output cannot be written, or another file cannot be used."),
    ("75", "Store unavailable or unsuitable."),
    ("128+n", "Signal n ended the command."),
)  # fmt: skip


def page() -> str:
    """Return the page, in the man(7) format."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield ".\\\" Made of the command's help by ./dev man."
    yield f'.TH INTERLOCK 1 "" "interlock {interlock.__version__}" "User Commands"'
    yield from (".SH NAME", _plain("interlock - hold a lock while a command runs, and list the holders of locks"))
    yield ".SH SYNOPSIS"
    for name in COMMANDS:
        yield from (".B interlock", _plain(_usage(name)), ".br")
    yield ".SH DESCRIPTION"
    yield from _paragraphs(HEAD)
    yield ".SH COMMANDS"
    for name in COMMANDS:
        yield f".SS {name}"
        yield from _command(name)
    for title, rows in (("ENVIRONMENT", ENVIRONMENT), ("EXIT STATUS", STATUSES)):
        yield f".SH {title}"
        yield from _rows(rows)
    yield from (".SH SEE ALSO", ".BR flock (1)", ".PP", "https://interlock.readthedocs.io/")


def _command_of(name: str) -> tuple[click.Command, click.Context]:
    context = click.Context(group, info_name="interlock")
    _, command, _ = group.resolve_command(context, [name])
    assert command is not None
    return command, click.Context(command, context, name, help_option_names=["-h", "--help"])


def _usage(name: str) -> str:
    command, context = _command_of(name)
    return " ".join((name, *command.collect_usage_pieces(context)))


def _command(name: str) -> Iterator[str]:
    command, context = _command_of(name)
    yield from _paragraphs(command.help or "")
    yield from _rows([row for param in command.get_params(context) if (row := param.get_help_record(context))])


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        if words := paragraph.split():
            yield from (".PP", _plain(" ".join(words)))


def _rows(rows: "list[tuple[str, str]] | tuple[tuple[str, str], ...]") -> Iterator[str]:
    for left, right in rows:
        if not right:
            continue  # arguments are explained in the text and the synopsis
        yield from (".TP", f"\\fB{_plain(left)}\\fR", _plain(right))


def _plain(text: str) -> str:
    """Escape text for the formatter."""
    quoted = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...")
    return f"\\&{quoted}" if quoted[:1] in (".", "'") else quoted


if __name__ == "__main__":
    print(page(), end="")
