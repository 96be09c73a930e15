import interlock
from tests.docs.django_site import make_site

globals().update(make_site(FOLDER))
locks = interlock.connect()

from django.contrib import admin

ADDRESSES = {"class BookForm(": "Book = type(book)\nclass BookForm("}  # the Book of a block above has no fields


def check():
    assert Account.objects.get(pk=1).balance == 5
