"""The three races, each of many rounds; what is lost is counted by looking at the site afterwards."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from racing.clients import Answer, Ask, Client, Crowd

CROWD = 24
"""Clients that want the same copy, or the same book."""
BOOKS = CROWD // 2
"""Books that are returned and renamed at once."""
COPIES = 3
"""Copies of the book that is reserved."""
LOCKED = 423
NUMBERS = count(1)
"""For titles, of which none is ever used again."""


@dataclass(slots=True)
class Outcome:
    """What a race came to.

    Attributes:
        rounds: how often it was run.
        lost: how often something was.
        answers: how often the site answered by each status.
        latencies: seconds that each request took.
        seconds: that all rounds took, without what was done between them.
    """

    rounds: int = 0
    lost: int = 0
    answers: Counter[int] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def run(self, crowd: Crowd, asks: list[Ask]) -> list[Answer]:
        """Run a round, and return the answers."""
        started = time.perf_counter()
        answers = crowd.at_once(asks)
        self.seconds += time.perf_counter() - started
        self.rounds += 1
        self.answers.update(answer.status for answer in answers)
        self.latencies += [answer.seconds for answer in answers]
        return answers


class Desk:
    """What is done between the rounds, by one client alone.

    Args:
        client: logged in.

    Attributes:
        readers: as many as the crowd has clients.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.readers: list[int] = [reader["id"] for reader in client.get("/api/readers/")["results"]][:CROWD]
        self._books = {book["id"]: book["copies"] for book in self._all_books()}

    def _all_books(self) -> Iterator[dict[str, Any]]:
        page = "/api/books/"
        while page:
            shown = self.client.get(page)
            yield from shown["results"]
            page = shown["next"]

    def books_with(self, copies: int) -> list[int]:
        """Return the books that have so many copies, always in the same order."""
        return sorted(book for book, number in self._books.items() if number == copies)

    def copies(self, book: int) -> list[dict[str, Any]]:
        """Return the copies of a book."""
        found: list[dict[str, Any]] = self.client.get(f"/api/copies/?book={book}")["results"]
        return found

    def open(self, what: str) -> list[dict[str, Any]]:
        """Return the open loans or reservations."""
        found: list[dict[str, Any]] = self.client.get(f"/api/{what}")["results"]
        return found

    def must(self, path: str, **data: Any) -> None:
        """Have something done.

        Raises:
            RuntimeError: it was not.
        """
        answer = self.client.post(path, **data)
        if not answer.done:
            raise RuntimeError(f"POST {path} was answered by {answer.status}: {answer.body}")


def return_versus_rename(desk: Desk, crowd: Crowd, rounds: int) -> Outcome:
    """A student returns a book while an administrator corrects its title: both must be seen afterwards."""
    outcome = Outcome()
    books = desk.books_with(1)[:BOOKS]
    copies = {book: desk.copies(book)[0]["id"] for book in books}
    for _ in range(rounds):
        title = f"Title {next(NUMBERS)}"
        for copy in copies.values():
            desk.must(f"/api/copies/{copy}/borrow/", reader=desk.readers[0])
        asks = []
        for book, copy in copies.items():
            asks.append(Ask(f"/api/copies/{copy}/return/", {}))
            asks.append(Ask(f"/api/books/{book}/rename/", {"title": title}))
        answers = outcome.run(crowd, asks)
        for (book, copy), returned, renamed in zip(copies.items(), answers[::2], answers[1::2], strict=True):
            now = desk.client.get(f"/api/books/{book}/")
            outcome.lost += returned.done and now["status"] != "free"
            outcome.lost += renamed.done and now["title"] != title
            if not returned.done:
                desk.must(f"/api/copies/{copy}/return/")
    return outcome


def one_copy(desk: Desk, crowd: Crowd, rounds: int) -> Outcome:
    """Many readers borrow one copy of a book that has others too: one must get it."""
    outcome = Outcome()
    copy = desk.copies(desk.books_with(COPIES)[0])[0]["id"]
    for _ in range(rounds):
        asks = [Ask(f"/api/copies/{copy}/borrow/", {"reader": reader}) for reader in desk.readers]
        answers = outcome.run(crowd, asks)
        loans = desk.open(f"loans/?open=1&copy={copy}")
        outcome.lost += wrong(len(loans), 1, answers)
        for _loan in loans:
            desk.must(f"/api/copies/{copy}/return/")
    return outcome


def three_copies(desk: Desk, crowd: Crowd, rounds: int) -> Outcome:
    """Many readers reserve a book of three copies: three must get a reservation."""
    outcome = Outcome()
    book = desk.books_with(COPIES)[0]
    for _ in range(rounds):
        asks = [Ask(f"/api/books/{book}/reserve/", {"reader": reader}) for reader in desk.readers]
        answers = outcome.run(crowd, asks)
        reservations = desk.open(f"reservations/?open=1&book={book}")
        outcome.lost += wrong(len(reservations), COPIES, answers)
        for reservation in reservations:
            desk.must(f"/api/reservations/{reservation['id']}/cancel/")
    return outcome


def wrong(found: int, wanted: int, answers: list[Answer]) -> int:
    """Return how many are too many; or too few, unless somebody was told to come again."""
    if found < wanted and any(answer.status == LOCKED for answer in answers):
        return 0
    return abs(found - wanted)


@dataclass(frozen=True, slots=True)
class Race:
    """A race.

    Attributes:
        key: its short name.
        title: what happens.
        lost: what the losses are.
        run: runs it.
        guard_suffices: True if Guarded alone must lose nothing.
    """

    key: str
    title: str
    lost: str
    run: Callable[[Desk, Crowd, int], Outcome]
    guard_suffices: bool


RACES = (
    Race("rename", "A book is returned and renamed at once", "updates lost", return_versus_rename, True),
    Race("borrow", f"{CROWD} readers borrow one copy", "loans too many", one_copy, False),
    Race(
        "reserve",
        f"{CROWD} readers reserve a book of {COPIES} copies",
        "reservations too many",
        three_copies,
        False,
    ),
)
