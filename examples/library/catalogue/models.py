"""What the library has: books and their copies, readers, loans and reservations.

The database is told nothing of the rules that two requests at once can break: that a copy is lent to one reader at
a time, and that a book has no more reservations than copies. A real site would add a unique constraint for the first
one as a second safeguard; here it would only hide what `race.py` is to show.
"""

from django.db import models
from django.db.models import Exists, OuterRef
from django.urls import reverse

from catalogue.protection import Guarded
from interlock.django.guarded import added


class Author(Guarded, models.Model):
    """Who has written a book."""

    name = models.CharField(max_length=200, unique=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Book(Guarded, models.Model):
    """A title, of which the library has some copies."""

    class Status(models.TextChoices):
        """Whether a copy is on the shelf."""

        FREE = "free", "on the shelf"
        LENT = "lent", "all copies lent"

    title = models.CharField(max_length=300)
    author = models.ForeignKey(Author, models.PROTECT, related_name="books")
    year = models.PositiveSmallIntegerField(help_text="Of the first publication.")
    status = models.CharField(max_length=4, choices=Status.choices, default=Status.FREE)
    times_lent = models.PositiveIntegerField(default=0)

    # Two who lend a copy each both count it.
    on_stale = {"times_lent": added}

    class Meta:
        ordering = ["title", "pk"]

    def __str__(self) -> str:
        return f"{self.title} ({self.year})"

    def get_absolute_url(self) -> str:
        """Return the address of its page."""
        return reverse("book", args=[self.pk])


class CopyQuerySet(models.QuerySet["Copy"]):
    """Copies."""

    def with_lent(self) -> "CopyQuerySet":
        """Add to each copy whether it is `lent`."""
        return self.annotate(lent=Exists(Loan.objects.open().filter(copy=OuterRef("pk"))))

    def free(self) -> "CopyQuerySet":
        """Keep those that are not lent."""
        return self.filter(~Exists(Loan.objects.open().filter(copy=OuterRef("pk"))))


class Copy(Guarded, models.Model):
    """A copy of a book, which can be lent."""

    book = models.ForeignKey(Book, models.CASCADE, related_name="copies")
    number = models.CharField("inventory number", max_length=20, unique=True)
    shelf = models.CharField(max_length=20)
    note = models.CharField(max_length=200, blank=True, help_text="Such as: the cover is torn.")

    objects = CopyQuerySet.as_manager()

    class Meta:
        ordering = ["number"]
        verbose_name_plural = "copies"

    def __str__(self) -> str:
        return self.number


class Reader(Guarded, models.Model):
    """A student with a library card."""

    card = models.CharField("number of the card", max_length=20, unique=True)
    name = models.CharField(max_length=200)

    class Meta:
        ordering = ["name", "card"]

    def __str__(self) -> str:
        return f"{self.name} ({self.card})"


class LoanQuerySet(models.QuerySet["Loan"]):
    """Loans."""

    def open(self) -> "LoanQuerySet":
        """Keep those of copies that were not returned yet."""
        return self.filter(returned_at=None)


class Loan(Guarded, models.Model):
    """A copy that a reader has, or had; a copy has one open loan at most."""

    copy = models.ForeignKey(Copy, models.PROTECT, related_name="loans")
    reader = models.ForeignKey(Reader, models.PROTECT, related_name="loans")
    since = models.DateTimeField(auto_now_add=True)
    returned_at = models.DateTimeField(null=True, blank=True)

    objects = LoanQuerySet.as_manager()

    class Meta:
        ordering = ["-since", "-pk"]

    def __str__(self) -> str:
        return f"{self.copy} to {self.reader}"


class ReservationQuerySet(models.QuerySet["Reservation"]):
    """Reservations."""

    def open(self) -> "ReservationQuerySet":
        """Keep those that were neither fulfilled nor cancelled."""
        return self.filter(ended_at=None)


class Reservation(Guarded, models.Model):
    """A wish for any copy of a book; a book has no more open ones than copies."""

    book = models.ForeignKey(Book, models.CASCADE, related_name="reservations")
    reader = models.ForeignKey(Reader, models.PROTECT, related_name="reservations")
    since = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    objects = ReservationQuerySet.as_manager()

    class Meta:
        ordering = ["since", "pk"]

    def __str__(self) -> str:
        return f"{self.book} for {self.reader}"
