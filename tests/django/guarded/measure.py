"""How long a guarded save takes, beside a plain one: `python tests/django/guarded/measure.py`.

INTERLOCK_TEST_DATABASE says on which database. Both models have the same thirteen columns; the figures are medians of
rounds that take turns, in microseconds of wall time and of this process's own.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1]
ROUNDS, SAVES = 21, 200


def one_field(row: Any, number: int) -> None:
    row.name = f"name {number}"


def four_fields(row: Any, number: int) -> None:
    row.name, row.status, row.notes, row.copies = f"name {number}", str(number), f"notes {number}", number


def timed(row: Any, change: Callable[[Any, int], None]) -> tuple[float, float]:
    """Save a row many times; return the microseconds of one save, by the wall and of this process."""
    wall, own = time.perf_counter(), time.process_time()
    for number in range(SAVES):
        change(row, number)
        row.save()
    scale = 1e6 / SAVES
    return (time.perf_counter() - wall) * scale, (time.process_time() - own) * scale


def main() -> None:
    from guarded.library.models import Book, PlainBook

    rows = [model.objects.create(name="name", tags=["a", "b"]) for model in (PlainBook, Book)]
    for change in (one_field, four_fields):
        found = [[timed(row, change) for row in rows] for _ in range(ROUNDS)]
        for place, what in enumerate(("wall", "process")):
            plain, guarded = (statistics.median(each[side][place] for each in found) for side in (0, 1))
            print(f"{change.__name__:12} {what:8} plain {plain:6.0f}  guarded {guarded:6.0f}  {guarded / plain:.2f}")


if __name__ == "__main__":
    sys.path.insert(0, str(FOLDER))
    os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
    import conftest

    with ExitStack() as stack:
        conftest.set_up(stack)
        main()
