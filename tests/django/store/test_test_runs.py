"""Test runs of a site that calls `occupy`, by `manage.py test` and by pytest-django."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connections

SETTINGS = """
import json, os
DATABASES = json.loads(os.environ["SITE_DATABASES"])
INSTALLED_APPS = ["interlock.django", "shop"]
SECRET_KEY = "only for tests"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
if DATABASES["default"]["ENGINE"].endswith("mysql"):
    from importlib.util import find_spec
    if find_spec("MySQLdb") is None:
        __import__("pymysql").install_as_MySQLdb()
"""
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
MANAGE = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "site_settings"
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""


@pytest.fixture
def site(databases: None, tmp_path: Path) -> Path:
    """A site on the database of these tests, with nothing in its settings about locks or tests."""
    (tmp_path / "shop").mkdir()
    files = {"site_settings.py": SETTINGS, "shop/__init__.py": "", "shop/models.py": MODELS, "shop/tests.py": TESTS,
             "manage.py": MANAGE, "pytest.ini": "[pytest]\nDJANGO_SETTINGS_MODULE = site_settings\n"}  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def run(site: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run Python in the folder of the site."""
    known = connections.settings["default"]
    place: dict[str, Any] = {field: known[field] for field in ("ENGINE", "HOST", "PORT", "USER", "PASSWORD")}
    place["NAME"] = str(site / "db.sqlite3") if settings.DATABASE == "sqlite" else f"site_{os.getpid()}"
    environment = {**os.environ, "SITE_DATABASES": json.dumps({"default": place})}
    del environment["DJANGO_SETTINGS_MODULE"]
    return subprocess.run(
        [sys.executable, *words], cwd=site, env=environment, capture_output=True, text=True, timeout=240
    )


@pytest.mark.parametrize(
    "words",
    [
        ("manage.py", "test"),
        ("-m", "pytest", "-p", "no:cacheprovider", "shop/tests.py"),
    ],
    ids=" ".join,
)
def test_a_site_that_occupies_is_tested_as_any_other(site: Path, words: tuple[str, ...]) -> None:
    done = run(site, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "OK" in done.stderr or "4 passed" in done.stdout


def test_a_database_that_was_kept_is_used_again_and_dropped(site: Path) -> None:
    for words in (("--keepdb", "--parallel", "2"), ("--noinput", "--parallel", "2")):
        done = run(site, "manage.py", "test", *words)
        assert done.returncode == 0, (words, done.stdout + done.stderr)
