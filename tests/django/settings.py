"""Django settings of all tests in this folder; INTERLOCK_TEST_DATABASE selects their database."""

import atexit
import os
import shutil
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp

DATABASE = os.environ.get("INTERLOCK_TEST_DATABASE", "sqlite")
"""sqlite, postgresql or mariadb; a private server is started for the latter two."""

ENGINES = {"sqlite": "sqlite3", "postgresql": "postgresql", "mariadb": "mysql"}


def own_folder() -> Path:
    """Return a new folder for this process's files, inside the first process's, which removes all at its exit.

    Many of the tests' processes are killed, and can remove nothing.
    """
    begun = os.environ.get("INTERLOCK_TEST_FOLDER")
    if begun is None:
        begun = os.environ["INTERLOCK_TEST_FOLDER"] = mkdtemp(prefix="interlock-django-")
        atexit.register(shutil.rmtree, begun, ignore_errors=True)
    return Path(mkdtemp(dir=begun))


FOLDER = own_folder()
"""For files of the tests."""


def database(name: str) -> dict[str, object]:
    """Return the settings of one database; the fixture `databases` adds where the server is."""
    settings: dict[str, object] = {"ENGINE": f"django.db.backends.{ENGINES[DATABASE]}", "NAME": name}
    if DATABASE == "sqlite":
        # A file, since threads with a connection each can't share a database in memory.
        path = str(FOLDER / f"{name}.sqlite3")
        settings |= {"NAME": path, "TEST": {"NAME": path}, "OPTIONS": {"timeout": 30}}
    return settings


if DATABASE == "mariadb" and find_spec("MySQLdb") is None:
    import_module("pymysql").install_as_MySQLdb()  # needs no compiler


DATABASES = {
    "default": database("library"),
    "other": database("other"),
    # The first one once more, as if it were its replica.
    "replica": {**database("library"), "TEST": {"MIRROR": "default"}},
}

INTERLOCK: dict[str, object] = {}
if DATABASE == "postgresql":
    try:
        import_module("psycopg")
    except ImportError:  # there is psycopg2 only, which the locks of PostgreSQL do not use
        INTERLOCK = {"default": {"LOCATION": "orm:"}}

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "debug_toolbar",
    "interlock.django",
    "guarded.library",
    "store.shelf",
    *(["django.contrib.postgres"] if DATABASE == "postgresql" else []),
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
ROOT_URLCONF = "guarded.library.urls"
REST_FRAMEWORK: dict[str, object] = {
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "UNAUTHENTICATED_USER": None,
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SILENCED_SYSTEM_CHECKS = ["debug_toolbar.W001"]  # its middleware is there in its own tests only
SECRET_KEY = "only for tests"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
MEDIA_ROOT = str(FOLDER / "media")
STATIC_URL = "/static/"
USE_TZ = True
