"""The admin: a second editor of the same object loses nothing."""

from django.contrib import admin

from catalogue.models import Author, Book, Copy, Loan, Reader, Reservation
from catalogue.protection.web import GuardedAdmin, GuardedInline


class CopyInline(GuardedInline, admin.TabularInline):  # type: ignore[type-arg] # can't be subscripted at run time
    """The copies of a book."""

    model = Copy
    extra = 0


@admin.register(Author)
class AuthorAdmin(GuardedAdmin):
    """Authors."""

    search_fields = ["name"]


@admin.register(Book)
class BookAdmin(GuardedAdmin):
    """Books with their copies."""

    list_display = ["title", "author", "year", "status", "times_lent"]
    list_filter = ["status"]
    list_select_related = ["author"]
    search_fields = ["title", "author__name"]
    autocomplete_fields = ["author"]
    inlines = [CopyInline]


@admin.register(Copy)
class CopyAdmin(GuardedAdmin):
    """Copies."""

    list_display = ["number", "book", "shelf", "note"]
    list_select_related = ["book"]
    search_fields = ["number", "book__title"]
    autocomplete_fields = ["book"]


@admin.register(Reader)
class ReaderAdmin(GuardedAdmin):
    """Readers."""

    list_display = ["name", "card"]
    search_fields = ["name", "card"]


@admin.register(Loan)
class LoanAdmin(GuardedAdmin):
    """Loans."""

    list_display = ["copy", "reader", "since", "returned_at"]
    list_select_related = ["copy", "reader"]
    autocomplete_fields = ["copy", "reader"]


@admin.register(Reservation)
class ReservationAdmin(GuardedAdmin):
    """Reservations."""

    list_display = ["book", "reader", "since", "ended_at"]
    list_select_related = ["book", "reader"]
    autocomplete_fields = ["book", "reader"]
