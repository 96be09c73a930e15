from tests.docs.django_site import make_site

globals().update(make_site(FOLDER))

from celery import shared_task
from django.test import TestCase
from django.views.generic import UpdateView

ADDRESSES = {"./manage.py report": "./manage.py version"}


def borrow(book):
    pass


def check():
    assert Book.objects.get(pk=book.pk).status == "free"
