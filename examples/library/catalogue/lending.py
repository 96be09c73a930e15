"""The lending desk: what each function does is exclusive for the book, if the site occupies.

They look, decide, and write, as such code does everywhere. Only the line `with occupy(...)` keeps others from
deciding by the same look.
"""

from django.db import transaction
from django.utils import timezone

from catalogue.models import Book, Copy, Loan, Reader, Reservation
from catalogue.protection import occupy
from catalogue.thinking import think

WAIT = 3.0
"""Seconds to wait for others who are busy with the book."""


class Refused(Exception):
    """The rules of the library forbid it; the message tells the reader why."""


def borrow(copy: Copy, reader: Reader) -> Loan:
    """Lend a copy.

    Raises:
        Refused: it is lent already, or kept for others.
    """
    with occupy(copy.book, timeout=WAIT, label="borrow") as book:
        free = list(book.copies.free())
        if copy not in free:
            raise Refused(f"Copy {copy} is lent already.")
        reservations = book.reservations.open()
        if reservations.exclude(reader=reader).count() >= len(free):
            raise Refused(f"Copy {copy} is kept for a reader who has reserved the book.")
        think()
        with transaction.atomic():
            loan = Loan.objects.create(copy=copy, reader=reader)
            reservations.filter(reader=reader).update(ended_at=timezone.now())
            book.times_lent += 1
            book.status = Book.Status.FREE if len(free) > 1 else Book.Status.LENT
            book.save()
        return loan


def give_back(copy: Copy) -> Loan:
    """Take a copy back.

    Raises:
        Refused: it is not lent.
    """
    with occupy(copy.book, timeout=WAIT, label="return") as book:
        loan = copy.loans.open().first()
        if loan is None:
            raise Refused(f"Copy {copy} is not lent.")
        think()
        with transaction.atomic():
            loan.returned_at = timezone.now()
            loan.save()
            book.status = Book.Status.FREE
            book.save()
        return loan


def reserve(book: Book, reader: Reader) -> Reservation:
    """Reserve any copy of a book.

    Raises:
        Refused: the reader has reserved it already, or all copies are reserved.
    """
    with occupy(book, timeout=WAIT, label="reserve") as book:
        reservations = book.reservations.open()
        if reservations.filter(reader=reader).exists():
            raise Refused(f"{reader.name} has reserved this book already.")
        if reservations.count() >= book.copies.count():
            raise Refused("All copies of this book are reserved.")
        think()
        return Reservation.objects.create(book=book, reader=reader)


def cancel(reservation: Reservation) -> None:
    """End a reservation; nothing happens if it has ended."""
    if reservation.ended_at is None:
        reservation.ended_at = timezone.now()
        reservation.save()
