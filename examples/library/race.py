#!/usr/bin/env python
"""Drives the site with real HTTP clients, under gunicorn with several processes and threads, and counts what is lost.

Exit status: 0; 1 if something was lost that `occupy` keeps, or that `Guarded` alone keeps; 2 if there was no race.
"""

import argparse
import json
import platform
import signal
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version

from racing.clients import Client, Crowd, log_in
from racing.races import CROWD, RACES, Desk
from racing.report import Result, show
from racing.site import PASSWORD, place, serve

PROTECTIONS = ("none", "guarded", "occupy")
ROUNDS = 10


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--database", choices=["sqlite", "postgresql", "mariadb"], default="sqlite", help="a private one"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each race (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=3, help="processes of gunicorn (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=4, help="threads of each (default: %(default)s)")
    parser.add_argument("--thinking", type=float, default=0, help="ms between reading and writing (default: none)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    found = parser.parse_args(words)
    if min(found.rounds, found.workers, found.threads) < 1 or not 0 <= found.thinking < 1000:
        parser.error("--rounds, --workers and --threads are 1 or more, --thinking is 0 or more, and less than 1000")
    return found


def race(asked: argparse.Namespace) -> list[Result]:
    """Run all races under all protections."""
    numbers = {"WORKERS": asked.workers, "THREADS": asked.threads, "THINKING_TIME": asked.thinking}
    results: list[Result] = []
    cookies: dict[str, str] = {}
    with place(asked.database) as environment:
        for protection in PROTECTIONS:
            with serve(environment, PROTECTION=protection, **numbers) as address:
                # The session is in the database, which they share.
                cookies = cookies or log_in(address, "admin", PASSWORD)
                results += all_races(address, cookies, protection, asked.rounds)
    return results


def all_races(address: str, cookies: dict[str, str], protection: str, rounds: int) -> Iterator[Result]:
    """Run all races under one protection."""
    with Client(address, cookies) as client, Crowd(address, cookies, CROWD) as crowd:
        desk = Desk(client)
        for which in RACES:
            print(f"{protection}: {which.title} ...", file=sys.stderr)
            yield Result(which, protection, which.run(desk, crowd, rounds))


def main(words: Sequence[str] | None = None) -> int:
    """Race, report, and return the exit status."""
    asked = arguments(words)
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda number, _: sys.exit(128 + number))  # ends the servers too
    about = {
        "database": asked.database,
        "processes": asked.workers,
        "threads": asked.threads,
        "rounds": asked.rounds,
        "thinking": asked.thinking,
        "python": platform.python_version(),
        "django": version("Django"),
        "gunicorn": version("gunicorn"),
    }
    try:
        results = race(asked)
    except RuntimeError as error:
        print(f"race.py: {error}", file=sys.stderr)
        return 2
    if asked.json:
        print(json.dumps({**about, "results": [result.figures() for result in results]}, indent=2))
    else:
        print(", ".join(f"{key} {value}" for key, value in about.items()))
        show(results)
    for result in results:
        if result.protection == "none" and result.outcome.lost == 0:
            print(
                f"warning: without protection nothing was lost: {result.race.title}: no real race?", file=sys.stderr
            )
    return 1 if any(result.failed for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
