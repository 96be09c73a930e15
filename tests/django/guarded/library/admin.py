"""The library's admin."""

from typing import TYPE_CHECKING

from django import forms
from django.contrib import admin
from guarded.library.models import Author, Book, Careless, Counter, Magazine

from interlock.django.guarded.admin import GuardedAdmin, GuardedInline

if TYPE_CHECKING:  # at run time they can't be subscripted
    BookTable = admin.TabularInline[Book, Author]
    BookModelForm = forms.ModelForm[Book]
else:
    BookTable, BookModelForm = admin.TabularInline, forms.ModelForm


class BookInline(GuardedInline, BookTable):
    model = Book
    fields = ["name", "status"]
    extra = 1


class BookForm(BookModelForm):
    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if name == "forbidden":
            raise forms.ValidationError("Not this name.")
        return name


@admin.register(Author)
class AuthorAdmin(GuardedAdmin):
    inlines = [BookInline]


@admin.register(Book)
class BookAdmin(GuardedAdmin):
    form = BookForm
    fieldsets = [(None, {"fields": ["name", "status"]}), ("More", {"fields": [("notes", "due"), "author", "cover"]})]
    list_display = ["__str__", "status"]
    list_editable = ["status"]


@admin.register(Magazine)
class MagazineAdmin(GuardedAdmin):
    readonly_fields = ["pages"]


@admin.register(Counter)
class CounterAdmin(GuardedAdmin):
    pass


@admin.register(Careless)
class CarelessAdmin(GuardedAdmin):
    exclude = ["number"]
