"""The command line of `interlock run`: one table of options, read by the parser and by the help."""

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any, NamedTuple

from interlock.cli.exits import CONFLICT


class Usage(Exception):
    """The command line makes no sense; the message says why."""


class HelpWanted(Exception):
    """The command line asks for the help."""


class Order(NamedTuple):
    """What `interlock run` was asked to do.

    Attributes:
        name: of the lock.
        command: the words of the command.
        shared, permits, units: the kind of lock; exclusive unless one of the first two is given.
        wait: seconds to wait at most; None for no limit, 0 for one try.
        conflict: the exit status if the lock is not obtained.
        ttl: seconds of lease; None for the default.
        grace: seconds from TERM to KILL when the lock is lost.
        at_least: seconds that the lock is held at least, even if the command ends sooner.
        keep: hold the lock until every process of the command is gone.
        store, namespace, label: as `connect` and `lock` take them.
        verbose: say what happens.
    """

    name: str
    command: tuple[str, ...]
    shared: bool = False
    permits: int | None = None
    units: int = 1
    wait: float | None = None
    conflict: int = CONFLICT
    ttl: float | None = None
    grace: float = 5.0
    at_least: float = 0.0
    keep: bool = False
    store: str | None = None
    namespace: str = ""
    label: str | None = None
    verbose: bool = False


class Option(NamedTuple):
    """One option: its spellings, what its value is called ("" for none), how to read it, and the help."""

    key: str
    spellings: tuple[str, ...]
    value: str
    read: Callable[[str], Any]
    help: str


def _text(given: str) -> str:
    return given


def _seconds(given: str) -> float:
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not isfinite(seconds) or seconds < 0:
        raise Usage(f"{given!r} is no number of seconds; give one like 10 or 0.5")
    return seconds


def _count(given: str) -> int:
    if not (given.isascii() and given.isdigit() and 1 <= int(given[:12]) <= 1_000_000_000):
        raise Usage(f"{given!r} is no whole number from 1 to 1000000000")
    return int(given)


def _status(given: str) -> int:
    if not (given.isascii() and given.isdigit() and int(given[:12]) <= 255):
        raise Usage(f"{given!r} is no exit status; give a whole number from 0 to 255")
    return int(given)


def _refused(why: str) -> Callable[[str], Any]:
    def refuse(_: str) -> None:
        raise Usage(why)

    return refuse


UNLOCK = "it is not needed: the lock is released when the command ends, whatever it leaves running"
NO_FORK = "it is not possible: interlock has to stay beside the command to renew the lock and to release it"

OPTIONS = (
    Option("shared", ("-s", "--shared"), "", _text, "Share the lock with others that say -s."),
    Option("exclusive", ("-x", "-e", "--exclusive"), "", _text, "Have the lock alone. The default."),
    Option("permits", ("--permits",), "N", _count, "A semaphore: admit N units at a time."),
    Option("units", ("--units",), "K", _count, "Take K units of the semaphore. Default: 1."),
    Option("nonblock", ("-n", "--nb", "--nonblock"), "", _text, "Do not wait for the lock."),
    Option("wait", ("-w", "--wait", "--timeout"), "SEC", _seconds, "Wait at most SEC seconds; 0 is -n."),
    Option(
        "conflict", ("-E", "--conflict-exit-code"), "CODE", _status,
        "Exit with CODE if the lock is not obtained. Default: 1.",
    ),
    Option("shell", ("-c", "--command"), "COMMAND", _text, "Run COMMAND with $SHELL, else with /bin/sh."),
    Option("close", ("-o", "--close"), "", _text, "Accepted for flock's sake: the command never inherits the lock."),
    Option("keep", ("--keep",), "", _text, "Hold the lock until all processes that the command started are gone."),
    Option(
        "at_least", ("--at-least",), "SEC", _seconds,
        "Hold the lock at least SEC seconds, for commands shorter than the machines' clocks differ.",
    ),
    Option("grace", ("--grace",), "SEC", _seconds, "When the lock is lost: seconds from TERM to KILL. Default: 5."),
    Option("ttl", ("--ttl",), "SEC", _seconds, "Seconds of lease; it is renewed. Default: 30."),
    Option(
        "store", ("--store",), "URL", _text,
        "Where the locks are. Default: $INTERLOCK_URL, else /tmp/interlock-UID.",
    ),
    Option("namespace", ("--namespace",), "TEXT", _text, "Whose locks they are. Default: nobody's in particular."),
    Option("label", ("--label",), "TEXT", _text, "What others see in the line. Default: the command's name."),
    Option("verbose", ("-v", "--verbose"), "", _text, "Say on the error stream what happens, with times."),
    Option("unlock", ("-u", "--unlock"), "", _refused(UNLOCK), f"Refused: {UNLOCK}."),
    Option("no_fork", ("-F", "--no-fork"), "", _refused(NO_FORK), f"Refused: {NO_FORK}."),
    Option("help", ("-h", "--help"), "", _text, "Show this and exit."),
)  # fmt: skip
BY_SPELLING = {spelling: option for option in OPTIONS for spelling in option.spellings}


def parse(words: Sequence[str]) -> Order:
    """Read the words after `interlock run`.

    Options stand before NAME, or between NAME and the command, which starts with the first word that is no
    option, or after `--`; from there on every word is the command's own.

    Raises:
        Usage: they make no sense.
        HelpWanted: one of them is --help.
    """
    rest = list(words)
    given: dict[str, Any] = {}
    options_over = _take_options(rest, given)
    if not rest:
        raise Usage("which lock, and which command? The form is: interlock run [OPTIONS] NAME -- COMMAND…")
    name = rest.pop(0)
    if not options_over:
        _take_options(rest, given)
    elif rest[:1] == ["--"]:
        del rest[0]
    return _order(name, rest, given)


def _take_options(rest: list[str], given: dict[str, Any]) -> bool:
    """Take the options at the head of `rest`; True if `--` ended them."""
    while rest:
        word = rest[0]
        if word == "--":
            del rest[0]
            return True
        if len(word) < 2 or word[0] != "-":
            return False
        del rest[0]
        if word.startswith("--"):
            _take_long(word, rest, given)
        else:
            _take_short(word, rest, given)
    return False


def _take_long(word: str, rest: list[str], given: dict[str, Any]) -> None:
    spelling, equals, value = word.partition("=")
    option = _option(spelling)
    if not option.value:
        if equals:
            raise Usage(f"{spelling} takes no value")
        _note(option, spelling, None, given)
    else:
        _note(option, spelling, value if equals else _value(spelling, option, rest), given)


def _take_short(word: str, rest: list[str], given: dict[str, Any]) -> None:
    """Take a cluster: `-nv` is `-n -v`, `-w5` is `-w 5`."""
    for index, letter in enumerate(word[1:], 2):
        spelling = f"-{letter}"
        option = _option(spelling)
        if option.value:
            _note(option, spelling, word[index:] or _value(spelling, option, rest), given)
            return
        _note(option, spelling, None, given)


def _option(spelling: str) -> Option:
    option = BY_SPELLING.get(spelling)
    if option is None:
        from difflib import get_close_matches  # nobody else waits for it

        close = get_close_matches(spelling, BY_SPELLING, 1) if spelling.startswith("--") else []
        meant = f"did you mean {close[0]}? " if close else ""
        raise Usage(f"there is no option {spelling}; {meant}if it is the command's own, write -- before the command")
    if option.key == "help":
        raise HelpWanted
    return option


def _value(spelling: str, option: Option, rest: list[str]) -> str:
    if not rest:
        raise Usage(f"{spelling} needs a value: {spelling} {option.value}")
    return rest.pop(0)


def _note(option: Option, spelling: str, value: str | None, given: dict[str, Any]) -> None:
    try:
        read = option.read(value or "")
    except Usage as error:
        raise Usage(f"{spelling}: {error}") from None
    given[option.key] = True if value is None else read


def _order(name: str, command: list[str], given: dict[str, Any]) -> Order:
    """Judge the options together."""
    kinds = {"shared": "-s", "exclusive": "-x", "permits": "--permits"}
    chosen = [spelling for key, spelling in kinds.items() if given.get(key)]
    if len(chosen) > 1:
        raise Usage(f"{' and '.join(chosen)} contradict each other: give one of them")
    if "units" in given and "permits" not in given:
        raise Usage("--units counts units of a semaphore: say how many there are with --permits")
    if "nonblock" in given:
        if given.get("wait"):
            raise Usage("-n and -w contradict each other: give one of them")
        given["wait"] = 0.0
    if "shell" in given:
        if command:
            raise Usage(f"-c takes one COMMAND as one word: quote it, and leave out {command[0]!r}")
        command = _shell(given["shell"])
    if not command:
        raise Usage(f"which command is to run while {name!r} is locked? Write it after --, or give it to -c")
    for key in ("exclusive", "nonblock", "shell", "close"):
        given.pop(key, None)
    return Order(name, tuple(command), **given)


def _shell(command: str) -> list[str]:
    from os import environ

    return [environ.get("SHELL") or "/bin/sh", "-c", command]


INTRODUCTION = """\
Usage: interlock run [OPTIONS] NAME [OPTIONS] [--] COMMAND…
       interlock run [OPTIONS] NAME [OPTIONS] -c 'SHELL COMMAND'

  Wait in line for the lock NAME, run COMMAND while holding it, release it.

  COMMAND has this terminal, the open files and INTERLOCK_NAME and INTERLOCK_FENCE in its environment. Signals
  that interlock gets go on to it; the lock is held until it has ended.

  Exit status: the command's own; 128+n if signal n ended it, or the wait; 1 (or -E) if the lock was not obtained;
  64 wrong usage; 69 command not found or not executable; 70 the lock was lost and the command stopped;
  75 the store cannot be used.

Options:
"""


def help_text() -> str:
    """Return the help of `interlock run`."""
    rows = [(" ".join((*option.spellings, option.value)).rstrip(), option.help) for option in OPTIONS]
    width = max(len(left) for left, _ in rows)
    return INTRODUCTION + "".join(f"  {left:{width}}  {right}\n" for left, right in rows)
