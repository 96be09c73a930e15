# needs: postgres
import os
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import django
from django.conf import settings

if TYPE_CHECKING:  # names that the page or the test runner defines
    import pglock

    from interlock import Locks

    locks: Locks

url = os.environ["INTERLOCK_DOCS_POSTGRES"]
where = urlsplit(url)
database = {
    "ENGINE": "django.db.backends.postgresql", "NAME": where.path[1:], "USER": where.username, "HOST": where.hostname,
    "PORT": where.port,
}  # fmt: skip
apps = ["django.contrib.contenttypes", "pgactivity", "pglock"]
settings.configure(DATABASES={"default": database}, INSTALLED_APPS=apps, USE_TZ=True)
django.setup()
ADDRESSES = {"postgresql+advisory://app@db.example/app": url.replace("postgresql:", "postgresql+advisory:")}
made: list[int] = []


def make_report() -> None:
    made.append(1)


def check() -> None:
    assert len(made) == 3
    with pglock.advisory("report", timeout=1) as acquired:
        assert acquired
        assert locks.lock("report").acquire(timeout=0) is not None  # neither keeps the other out
