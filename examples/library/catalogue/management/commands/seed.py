"""`manage.py seed`: the books of books.csv, their copies, and some readers."""

import csv
from itertools import product
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from catalogue.models import Author, Book, Copy, Reader

FIRST_NAMES = ("Ana", "Ben", "Chloe", "Dmitri", "Elif", "Farah", "Goran", "Hana")
SURNAMES = ("Almeida", "Brandt", "Costa", "Dubois", "Eriksen")


class Command(BaseCommand):
    """Loads the seed data into an empty library."""

    help = "Load books.csv, copies and readers; nothing happens if there are books already."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the file."""
        parser.add_argument("file", nargs="?", type=Path, default=settings.BASE / "books.csv")

    def handle(self, *args: Any, file: Path, **options: Any) -> None:
        """Load."""
        if Book.objects.exists():
            return
        try:
            with file.open(newline="", encoding="utf-8") as lines:
                rows = list(csv.DictReader(lines))
        except OSError as error:
            raise CommandError(f"can't read {file}: {error.strerror}") from error
        with transaction.atomic():
            books = _books(rows)
            copies = _copies(books)
            readers = _readers()
        self.stdout.write(f"{len(books)} books, {len(copies)} copies, {len(readers)} readers")


def _books(rows: list[dict[str, str]]) -> list[Book]:
    names = sorted({row["author"] for row in rows})
    authors = {author.name: author for author in Author.objects.bulk_create([Author(name=name) for name in names])}
    return Book.objects.bulk_create(
        [Book(title=row["title"], author=authors[row["author"]], year=int(row["year"])) for row in rows]
    )


def _copies(books: list[Book]) -> list[Copy]:
    """Add one, two or three copies of each book in turn."""
    return Copy.objects.bulk_create(
        [
            Copy(book=book, number=f"{place:04}-{copy}", shelf=book.author.name.split()[-1][0])
            for place, book in enumerate(books, start=1)
            for copy in range(1, 2 + place % 3)
        ]
    )


def _readers() -> list[Reader]:
    names = enumerate(product(FIRST_NAMES, SURNAMES), start=1)
    return Reader.objects.bulk_create([Reader(card=f"R{place:04}", name=" ".join(parts)) for place, parts in names])
