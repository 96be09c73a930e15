"""`./dev demo`: lost updates in a library's web site, counted without a lock and with one."""

import signal
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from examples.demo.race import RacePlan, RaceStore, Round

_FAILED = 70
_UNAVAILABLE = 75


class _Failed(click.ClickException):
    """The demo could not be carried through."""

    exit_code = _FAILED


class _Unavailable(click.ClickException):
    """The store cannot be used."""

    exit_code = _UNAVAILABLE


@click.command()
@click.option("--store", metavar="URL", help="Where the locks are. Default: a folder of the demo's own.")
@click.option("--students", type=click.IntRange(1, 16), default=4, show_default=True, help="Processes that lend.")
@click.option("--admins", type=click.IntRange(1, 16), default=4, show_default=True, help="Processes that rename.")
@click.option("--books", type=click.IntRange(1, 1000), default=3, show_default=True, help="Books they share.")
@click.option(
    "--updates",
    type=click.IntRange(2, 1_000_000),
    default=1000,
    show_default=True,
    help="Updates in a round, in all.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 600),
    default=4.0,
    show_default=True,
    help="The longest a round may last.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def demo(
    store: str | None, students: int, admins: int, books: int, updates: int, seconds: float, as_json: bool
) -> None:
    """Lose updates without a lock, and none with one.

    A library's web site on SQLite: students lend and return books, administrators rename them, each in a
    process of its own. All read a whole row, change one field and save the whole row, as an ORM does. The
    first round has no locks, the second holds the book's lock from reading to saving. Updates that were saved
    and then overwritten are counted exactly.

    Exit status: 0 if nothing was lost with locks, 70 if something was or a process failed, 75 if the store
    cannot be used.
    """
    from examples.demo import report
    from examples.demo.race import RaceFailed, RacePlan

    if updates < students + admins:
        raise click.BadParameter(
            f"{students + admins} people make at least one each; give {students + admins} or more.",
            param_hint="--updates",
        )
    if seconds != seconds:
        raise click.BadParameter("give a number of seconds.", param_hint="--seconds")
    _refuse_memory(store)
    plan = RacePlan(students, admins, books, updates, seconds)
    try:
        with _termination_unwinds(), tempfile.TemporaryDirectory(prefix="interlock-demo-") as folder:
            rounds = _run(plan, Path(folder), store, shown=not as_json)
    except (RaceFailed, OSError) as error:
        raise _Failed(str(error)) from error
    if as_json:
        click.echo(report.as_json(plan, store, rounds))
    else:
        report.show(plan, store, rounds)
    if any(each.lost for each in rounds if each.locked):
        raise click.exceptions.Exit(_FAILED)


def _run(plan: "RacePlan", folder: Path, url: str | None, shown: bool) -> "list[Round]":
    from examples.demo import report
    from examples.demo.race import RaceStore, run_round

    store = RaceStore((folder / "locks").as_uri() if url is None else url, f"demo-{uuid.uuid4().hex[:12]}")
    _probe(store)
    rounds: list[Round] = []
    for guard in (None, store):
        title = report.title(guard is not None)
        with report.progress(title, plan.updates, shown) as tick:
            rounds.append(run_round(plan, folder / f"library-{len(rounds) + 1}.sqlite", guard, tick))
    return rounds


def _refuse_memory(url: str | None) -> None:
    if url is not None and url.strip().lower().partition(":")[0] == "memory":
        raise click.BadParameter(
            "memory:// reaches one process only, and the demo runs several. "
            "Give file:///folder or a server's URL, or leave --store out.",
            param_hint="--store",
        )


def _probe(store: "RaceStore") -> None:
    """Take and release one lock, so that a wrong URL or an absent server is told before the race."""
    import interlock

    try:
        with interlock.connect(store.url, namespace=store.namespace) as locks:
            with locks.lock("probe", timeout=5.0):
                pass
    except interlock.InvalidArgument as error:
        raise click.BadParameter(str(error), param_hint="--store") from error
    except interlock.LockError as error:
        raise _Unavailable(f"the store cannot be used: {error}") from error


@contextmanager
def _termination_unwinds() -> Iterator[None]:
    """Let SIGTERM and SIGHUP clean up as Ctrl-C does, instead of ending the process on the spot."""

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    demo(prog_name="./dev demo")
