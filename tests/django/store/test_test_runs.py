"""Test runs of a site that calls `occupy`, by `manage.py test` and by pytest-django."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from store.shop_site import make_site

MODELS = """
from django.db import models

class Book(models.Model):
    copies = models.IntegerField(default=0)
"""
TESTS = """
from concurrent.futures import ThreadPoolExecutor

from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase

from interlock.django import locks, occupy
from shop.models import Book

def borrow(pk):
    with transaction.atomic():
        book = Book.objects.get(pk=pk)
        book.save()  # this transaction has written before it occupies
        with occupy(book, timeout=20):
            book.copies -= 1
            book.save()
            assert [view.state for view in locks.claims(f"shop.book:{pk}")] == ["using"]

class BorrowTest(TestCase):
    def test_borrow(self):
        book = Book.objects.create(copies=2)
        with self.captureOnCommitCallbacks(execute=True):
            borrow(book.pk)
        with self.captureOnCommitCallbacks(execute=True):
            borrow(book.pk)
        book.refresh_from_db()
        self.assertEqual(book.copies, 0)

    def test_a_lock_that_is_left_behind(self):
        type(self).left = locks.lock("left behind").acquire()

class LendTest(TransactionTestCase):
    def test_threads(self):
        def lend(number):
            try:
                with locks.lock("counter", timeout=20):
                    seen = box[0]
                    box[0] = seen + 1
            finally:
                connection.close()
        box = [0]
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lend, range(20)))
        self.assertEqual(box, [20])

    def test_borrow(self):
        book = Book.objects.create(copies=1)
        borrow(book.pk)
        self.assertEqual(locks.claims(f"shop.book:{book.pk}"), [])
"""
PYTEST = "[pytest]\nDJANGO_SETTINGS_MODULE = site_settings\n"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(databases: None, tmp_path: Path) -> Run:
    """Runs Python in the folder of a site with nothing in its settings about locks or tests."""
    files = {"shop/models.py": MODELS, "shop/tests.py": TESTS, "pytest.ini": PYTEST}
    environment = make_site(tmp_path, f"site_{os.getpid()}", files)
    return lambda *words: subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240
    )


@pytest.mark.parametrize(
    "words",
    [
        ("manage.py", "test"),
        ("-m", "pytest", "-p", "no:cacheprovider", "shop/tests.py"),
    ],
    ids=" ".join,
)
def test_a_site_that_occupies_is_tested_as_any_other(run: Run, words: tuple[str, ...]) -> None:
    done = run(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "OK" in done.stderr or "4 passed" in done.stdout


def test_a_database_that_was_kept_is_used_again_and_dropped(run: Run) -> None:
    for words in (("--keepdb", "--parallel", "2"), ("--noinput", "--parallel", "2")):
        done = run("manage.py", "test", *words)
        assert done.returncode == 0, (words, done.stdout + done.stderr)
