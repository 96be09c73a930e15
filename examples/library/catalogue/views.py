"""The pages: a list of books, and a page for each with the buttons of the lending desk."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.contrib.admin.views.decorators import staff_member_required
from django.db.models import Count, Prefetch, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_POST
from django.views.generic import DetailView, ListView

from catalogue import lending
from catalogue.models import Book, Copy, Loan, Reader, Reservation
from interlock.core.errors import LockTimeout
from interlock.django.guarded import StaleObject


class BookList(ListView):  # type: ignore[type-arg] # can't be subscripted at run time
    """All books, or those that a search finds."""

    paginate_by = 30

    def get_queryset(self) -> QuerySet[Book]:
        """Return the books whose title or author contains what was searched for."""
        books = Book.objects.select_related("author").annotate(number=Count("copies")).order_by("title", "pk")
        return books.filter(Q(title__icontains=self.searched) | Q(author__name__icontains=self.searched))

    @property
    def searched(self) -> str:
        """What was searched for."""
        return self.request.GET.get("q", "").strip()

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return what the template shows."""
        return super().get_context_data(searched=self.searched, **kwargs)


class BookPage(DetailView):  # type: ignore[type-arg] # can't be subscripted at run time
    """A book, its copies and its reservations."""

    queryset = Book.objects.select_related("author")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return what the template shows; who has what is for staff."""
        loans = Prefetch("loans", Loan.objects.open().select_related("reader"), to_attr="open_loans")
        context = super().get_context_data(copies=self.object.copies.prefetch_related(loans), **kwargs)
        context["reservations"] = self.object.reservations.open().select_related("reader")
        if self.request.user.is_staff:
            context["readers"] = Reader.objects.all()
        return context


@require_POST
@staff_member_required
def borrow(request: HttpRequest, pk: int) -> HttpResponse:
    """Lend a copy to the chosen reader."""
    copy = get_object_or_404(Copy.objects.select_related("book"), pk=pk)
    reader = _reader(request)
    return _tell(request, copy.book, lambda: f"{lending.borrow(copy, reader).copy} is lent to {reader.name}.")


@require_POST
@staff_member_required
def give_back(request: HttpRequest, pk: int) -> HttpResponse:
    """Take a copy back."""
    copy = get_object_or_404(Copy.objects.select_related("book"), pk=pk)
    return _tell(request, copy.book, lambda: f"{lending.give_back(copy).copy} is back.")


@require_POST
@staff_member_required
def reserve(request: HttpRequest, pk: int) -> HttpResponse:
    """Reserve a book for the chosen reader."""
    book = get_object_or_404(Book, pk=pk)
    reader = _reader(request)
    return _tell(request, book, lambda: f"Reserved for {lending.reserve(book, reader).reader.name}.")


@require_POST
@staff_member_required
def cancel(request: HttpRequest, pk: int) -> HttpResponse:
    """End a reservation."""
    reservation = get_object_or_404(Reservation.objects.select_related("book", "reader"), pk=pk)

    def end() -> str:
        lending.cancel(reservation)
        return f"The reservation of {reservation.reader.name} is cancelled."

    return _tell(request, reservation.book, end)


def _reader(request: HttpRequest) -> Reader:
    pk = request.POST.get("reader", "")
    return get_object_or_404(Reader, pk=pk if pk.isdecimal() else None)


def _tell(request: HttpRequest, book: Book, do: Callable[[], str]) -> HttpResponse:
    """Do something, and show the book with a message that tells how it went."""
    try:
        messages.success(request, do())
    except lending.Refused as refused:
        messages.error(request, str(refused))
    except (LockTimeout, StaleObject):
        messages.error(request, "Somebody else is busy with this book. Please try again.")
    return redirect(book)
