"""How the tests of guarded models look at statements, and race."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections
from django.test.utils import CaptureQueriesContext


@contextmanager
def statements(using: str = "default") -> Iterator[list[str]]:
    """Collect the SQL that is sent, but for what begins and ends transactions."""
    found: list[str] = []
    with CaptureQueriesContext(connections[using]) as captured:
        yield found
    words = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE", "ROLLBACK", "SET ")
    found.extend(each["sql"] for each in captured if not each["sql"].startswith(words))


def in_threads(*functions: Callable[[], Any]) -> list[Any]:
    """Run functions at once, each in a thread with connections of its own; return their answers or exceptions."""
    answers: list[Any] = [None] * len(functions)
    start = threading.Barrier(len(functions))

    def run(number: int, function: Callable[[], Any]) -> None:
        try:
            start.wait()
            answers[number] = function()
        except Exception as error:
            answers[number] = error
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=each) for each in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return answers
